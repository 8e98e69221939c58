#include "backends/local/local_internal.h"

#include <sched.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has_capability(const struct local_workspace *w, unsigned capability)
{
	return w->capabilities[capability / 32].effective & (1U << (capability % 32));
}

void local_identity_init(struct local_workspace *w)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	w->own_uid = geteuid();
	w->own_gid = getegid();
	if (syscall(SYS_capget, &header, w->capabilities) < 0)
		return;
	w->can_switch = has_capability(w, CAP_SETUID) && has_capability(w, CAP_SETGID);
}

/* All threads of a process share one umask until they unshare it, which some containers forbid. */
static bool has_own_umask(void)
{
	static _Thread_local enum { UNTRIED, OWN, SHARED } state;

	if (state == UNTRIED)
		state = unshare(CLONE_FS) == 0 ? OWN : SHARED;
	return state == OWN;
}

/* These calls concern the calling thread only. */
struct local_guise local_act_as(const struct local_workspace *w, const struct op_context *ctx)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct local_guise guise = {.has_umask = has_own_umask()};

	if (guise.has_umask)
		guise.own_umask = umask(ctx->umask);
	else
		guise.mask = ctx->umask;
	if (!w->can_switch || (ctx->uid == w->own_uid && ctx->gid == w->own_gid))
		return guise;
	guise.switched = w;
	setfsgid(ctx->gid);
	setfsuid(ctx->uid);
	/* Leaving uid 0 drops the file system capabilities.  They are taken back, as access may
	 * depend on a supplementary group of the caller that only the kernel above knows. */
	syscall(SYS_capset, &header, w->capabilities);
	return guise;
}

void local_guise_done(struct local_guise *guise)
{
	if (guise->has_umask)
		umask(guise->own_umask);
	if (!guise->switched)
		return;
	setfsuid(guise->switched->own_uid);
	setfsgid(guise->switched->own_gid);
}
