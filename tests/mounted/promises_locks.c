#include "tests/mounted/promises.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "ops/support/cleanup.h"

/* Runs `work` in a process of its own; its result (0-255). */
static int in_child(int (*work)(void *), void *data)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(work(data));
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct lock_try {
	const char *path;
	enum { BY_FCNTL, BY_FLOCK, BY_OFD } how;
};

/* 0: got it; 1: somebody else has it. */
static int try_lock(void *data)
{
	const struct lock_try *try = data;
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
	int fd = open(try->path, O_RDWR | O_CLOEXEC), r;

	if (fd < 0)
		return 2;
	if (try->how == BY_FLOCK)
		r = flock(fd, LOCK_EX | LOCK_NB);
	else
		r = fcntl(fd, try->how == BY_OFD ? F_OFD_SETLK : F_SETLK, &lock);
	if (r < 0 && errno != EAGAIN && errno != EACCES)
		return 3;
	return r < 0;
}

static int lock_elsewhere(const char *path, int how)
{
	struct lock_try try = {.path = path, .how = how};

	return in_child(try_lock, &try);
}

/* What was released is free at once on this mount, and a moment later elsewhere. */
static int lock_released(const char *path, int how)
{
	int r, tries = 0;

	while ((r = lock_elsewhere(path, how)) == 1 && strcmp(path, "f") != 0 &&
		++tries < 100 * test_patience())
		usleep(10000);
	return r;
}

static void check_locks(const char *other)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 12, .l_len = 100};
	cleanup_fd int fd = -1;

	CHECK_RC(0, put("f", "x"));
	CHECK(appears_soon(other));
	fd = open("f", O_RDWR | O_CLOEXEC);
	CHECK_RC(0, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(0, SYS(fcntl(fd, F_SETLK, &lock)));
	CHECK_RC(1, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(1, lock_elsewhere(other, BY_OFD));
	CHECK_RC(0, lock_elsewhere(other, BY_FLOCK));
	close(open("f", O_RDONLY)); /* POSIX: any close drops the process's locks */
	CHECK_RC(0, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(0, SYS(fcntl(fd, F_OFD_SETLK, &lock)));
	CHECK_RC(1, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(1, lock_elsewhere(other, BY_OFD));
	lock.l_type = F_UNLCK;
	CHECK_RC(0, SYS(fcntl(fd, F_OFD_SETLK, &lock)));
	CHECK_RC(0, lock_released(other, BY_OFD));
	CHECK_RC(0, SYS(flock(fd, LOCK_SH)));
	CHECK_RC(1, lock_elsewhere(other, BY_FLOCK));
	CHECK_RC(0, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(0, SYS(flock(fd, LOCK_UN)));
	CHECK_RC(0, lock_released(other, BY_FLOCK));
}

PROMISE(locks_hold_between_processes)
{
	check_locks("f");
}

PROMISE(locks_hold_against_the_workspace)
{
	char other[PATH_MAX];

	if (!*backing)
		return;
	elsewhere(backing, "f", other, sizeof(other));
	check_locks(other);
}

PROMISE(locks_hold_between_two_mounts)
{
	char other[PATH_MAX];

	if (!*second_mount)
		return;
	elsewhere(second_mount, "f", other, sizeof(other));
	check_locks(other);
}

/* OFD locks go with the last close of their description, like flocks. */
PROMISE(closing_frees_ofd_locks_and_flocks)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd;

	CHECK_RC(0, put("f", "x"));
	fd = open("f", O_RDWR | O_CLOEXEC);
	CHECK_RC(0, SYS(fcntl(fd, F_OFD_SETLK, &lock)));
	CHECK_RC(0, SYS(flock(fd, LOCK_EX)));
	CHECK_RC(1, lock_elsewhere("f", BY_OFD));
	close(fd);
	for (int i = 0; i < 100 * test_patience() && lock_elsewhere("f", BY_OFD); i++)
		usleep(10000); /* the kernel releases files in the background */
	CHECK_RC(0, lock_elsewhere("f", BY_OFD));
	CHECK_RC(0, lock_elsewhere("f", BY_FLOCK));
}

static void nothing(int signal)
{
	(void)signal;
}

PROMISE(waiting_for_a_lock_can_be_interrupted)
{
	struct sigaction action = {.sa_handler = nothing};
	cleanup_fd int fd = -1, other = -1;
	time_t before = time(NULL);

	CHECK_RC(0, put("f", "x"));
	fd = open("f", O_RDWR | O_CLOEXEC);
	other = open("f", O_RDWR | O_CLOEXEC);
	CHECK_RC(0, SYS(flock(fd, LOCK_EX)));
	sigaction(SIGALRM, &action, NULL);
	alarm(1);
	CHECK_RC(-EINTR, SYS(flock(other, LOCK_EX)));
	CHECK(time(NULL) - before < 5);
}

static int save_and_sync(void)
{
	static const char text[8192] = "x";
	cleanup_fd int fd = open("new", O_RDWR | O_CREAT | O_DSYNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, sizeof(text)) < 0 || fsync(fd) < 0)
		return -errno;
	return SYS(close(steal_fd(&fd))) < 0 ? -errno : SYS(rename("new", "saved"));
}

/* Programs have timers, children and windows. */
PROMISE(signals_that_are_handled_fail_no_call)
{
	struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
	struct itimerval often = {{.tv_usec = 500}, {.tv_usec = 500}}, never = {{0}, {0}};
	int r = 0;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 30 && r == 0; i++)
		r = save_and_sync();
	setitimer(ITIMER_REAL, &never, NULL);
	CHECK_RC(0, r);
}

TEST_GROUP(locks_promises, TEST(locks_hold_between_processes),
	TEST(locks_hold_against_the_workspace), TEST(locks_hold_between_two_mounts),
	TEST(closing_frees_ofd_locks_and_flocks), TEST(waiting_for_a_lock_can_be_interrupted),
	TEST(signals_that_are_handled_fail_no_call));
