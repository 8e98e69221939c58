/* kube://[CONTAINER@]POD[/dir] - a container of a pod, by kubectl. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/end.h"
#include "backends/remote/ends/address.h"
#include "ops/support/cleanup.h"

enum { ASK_TIMEOUT_MS = 10000 };

/* "deploy.NAME" is kubectl's deploy/NAME; a name of Kubernetes may have dots, so only that. */
static int name_pod(const char *name, char **ret_name)
{
	static const char prefix[] = "deploy.";
	int r = 0;

	if (strncmp(name, prefix, strlen(prefix)) == 0)
		r = asprintf(ret_name, "deploy/%s", name + strlen(prefix));
	else
		*ret_name = strdup(name);
	return r < 0 || !*ret_name ? -ENOMEM : 0;
}

static int add_kubectl(
	const struct workspace_options *options, struct argv *argv, char **ret_reason)
{
	const char *context = workspace_option(options, "context");
	const char *namespace = workspace_option(options, "namespace");
	int r = end_check_name("context", context, "_.-:/@", ret_reason);

	if (r == 0)
		r = end_check_name("namespace", namespace, "-", ret_reason);
	argv_add(argv, "kubectl");
	if (context)
		argv_add_two(argv, "--context", context);
	if (namespace)
		argv_add_two(argv, "-n", namespace);
	return r;
}

/* ---- Which container, where none is named ----------------------------------------------- */

static void add_question(const struct end_target *target, struct argv *argv)
{
	bool is_pod = !strchr(target->name, '/');
	const char *pod = is_pod ? "" : ".spec.template";
	cleanup_free char *path = NULL;

	argv_add_list(argv, target->engine);
	argv_add(argv, "get");
	if (is_pod)
		argv_add(argv, "pod");
	argv_add_two(argv, target->name, "-o");
	if (asprintf(&path,
		    "jsonpath={%s.metadata.annotations.kubectl\\.kubernetes\\.io/"
		    "default-container}{\"\\n\"}{range %s.spec.containers[*]}{.name}{\"\\n\"}{end}",
		    pod, pod) < 0) {
		path = NULL;
		argv->failed = true;
		return;
	}
	argv_add(argv, path);
}

static int refuse_to_choose(const struct end_target *target, char *names, char **ret_reason)
{
	const char *pod = strchr(target->name, '/');
	size_t length = strlen(names);

	if (length && names[length - 1] == '\n')
		names[length - 1] = '\0';
	for (char *c = names; *c; c++)
		if (*c == '\n')
			*c = ' ';
	if (asprintf(ret_reason,
		    "\"%s\" has several containers (%s): write which, as in "
		    "kube://%.*s@%s%s/dir",
		    target->name, names, (int)strcspn(names, " "), names, pod ? "deploy." : "",
		    pod ? pod + 1 : target->name) < 0)
		*ret_reason = NULL;
	return -EINVAL;
}

/* The pod's default one, or its only one: to begin in the first of several would be a guess.  What
 * kubectl cannot say now, it says again when it is to connect. */
static int choose_container(struct end_target *target, char **ret_reason)
{
	cleanup_buffer struct buffer out = {0};
	cleanup_argv struct argv argv = {0};
	char *preset, *names, *end;
	int r;

	add_question(target, &argv);
	r = argv.failed ? -ENOMEM : argv_ask(argv.words, ASK_TIMEOUT_MS, &out, NULL);
	if (r == -ETIMEDOUT)
		*ret_reason = strdup("kubectl does not answer: check KUBECONFIG, and 'kubectl "
				     "config current-context'");
	if (r != 0 || !out.data)
		return r == -ENOMEM || r == -ETIMEDOUT ? r : 0;
	preset = (char *)out.data;
	names = strchr(preset, '\n');
	if (!names)
		return 0;
	*names++ = '\0';
	end = strchr(names, '\n');
	if (!*preset && end && end[1])
		return refuse_to_choose(target, names, ret_reason);
	if (!*preset && end)
		*end = '\0';
	if (!*preset)
		preset = names;
	if (!*preset || end_check_name("container", preset, "-", ret_reason) < 0)
		return *ret_reason ? -EINVAL : 0;
	target->container = strdup(preset);
	return target->container ? 0 : -ENOMEM;
}

/* ---- The row --------------------------------------------------------------------- */

static int prepare(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	cleanup_end_address struct end_address address = {0};
	struct end_target *target = &settings->target;
	cleanup_argv struct argv argv = {0};
	int r = end_address_parse(&kube_scheme, rest, &address, ret_reason);

	if (r == 0)
		r = end_check_name("pod", address.name, ".-", ret_reason);
	if (r == 0)
		r = end_check_name("container", address.user, "-", ret_reason);
	if (r == 0)
		r = add_kubectl(options, &argv, ret_reason);
	if (r == 0)
		r = argv_steal(&argv, &target->engine);
	if (r == 0)
		r = name_pod(address.name, &target->name);
	if (r < 0)
		return r;
	settings->transport.name = strdup(target->name);
	target->container = steal_ptr(&address.user);
	settings->root = steal_ptr(&address.directory);
	if (!settings->transport.name)
		return -ENOMEM;
	/* At an ssh host (inside=) the kubectl here cannot be asked; the one there takes the
	 * default container. */
	return target->container || settings->inside ? 0 : choose_container(target, ret_reason);
}

static void stream(const struct end_target *target, char *const *words, struct argv *argv)
{
	argv_add_list(argv, target->engine);
	argv_add_two(argv, "exec", "-i");
	argv_add(argv, target->name);
	if (target->container)
		argv_add_two(argv, "-c", target->container);
	argv_add(argv, "--");
	argv_add_list(argv, words);
}

/* Of a deployment, which pod it is that kubectl picks is not known: the helper says. */
static void identity(const struct end_target *target, struct argv *argv)
{
	cleanup_free char *path = NULL;

	if (strchr(target->name, '/'))
		return;
	argv_add_list(argv, target->engine);
	argv_add_two(argv, "get", "pod");
	argv_add_two(argv, target->name, "-o");
	if (asprintf(&path,
		    "jsonpath={.metadata.uid} {.status.containerStatuses[%s%s%s].containerID}",
		    target->container ? "?(@.name==\"" : "*",
		    target->container ? target->container : "",
		    target->container ? "\")" : "") < 0) {
		path = NULL;
		argv->failed = true;
		return;
	}
	argv_add(argv, path);
}

static void list(const struct workspace_options *options, struct argv *argv)
{
	cleanup_free char *reason = NULL;

	argv->failed = add_kubectl(options, argv, &reason) < 0 || argv->failed;
	argv_add_two(argv, "get", "pods");
	argv_add_two(argv, "-o", "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}");
}

/* kubectl says what it ends with several times before, as lines of its log ("E1127
 * 07:46:11.26..."). */
static bool is_log_line(const char *line)
{
	return strchr("EWI", line[0]) && strspn(line + 1, "0123456789") == 4 && line[5] == ' ';
}

static const struct end_advice advice[] = {
	{"cannot run \"kubectl\"", -ENOENT, "install kubectl"},
	{"container not found", -ENOENT,
		"'kubectl get pod %s -o jsonpath={.spec.containers[*].name}' shows its containers"},
	{"is not valid for pod", -EINVAL,
		"'kubectl get pod %s -o jsonpath={.spec.containers[*].name}' shows its containers"},
	{"a container name must be specified", -EINVAL,
		"the pod has several containers: write kube://CONTAINER@%s"},
	{"(NotFound)", -ENOENT, "'kubectl get pods' shows the names, with -n NAMESPACE elsewhere"},
	{"(Forbidden)", -EACCES,
		"the account needs the right to create pods/exec in that namespace: 'kubectl auth "
		"can-i create pods/exec'"},
	{"context was not found", -EINVAL, "'kubectl config get-contexts' shows the contexts"},
	{"does not exist", -EINVAL, "'kubectl config get-contexts' shows the contexts"},
	{"was refused", -EHOSTUNREACH, "check KUBECONFIG, and 'kubectl config current-context'"},
	{"nable to connect to the server", -EHOSTUNREACH,
		"check KUBECONFIG, and 'kubectl config current-context'"},
	{"ou must be logged in", -EACCES,
		"log in to the cluster by hand first: nobody is asked here"},
	{"executable file not found", -EOPNOTSUPP,
		"there is no shell in that image: 'kubectl debug -i %s --image=busybox "
		"--target=CONTAINER --profile=general' adds a container that has one, and stays in "
		"the pod; then mount that one's /proc/1/root/dir"},
	{"completed pod", -EHOSTUNREACH, "the pod has ended: see 'kubectl describe pod %s'"},
	{0},
};

static const struct workspace_scheme_option options[] = {
	{"context", "NAME"}, {"namespace", "NAME"}, {0}};

static const struct end kube_end = {
	.prepare = prepare,
	.stream = stream,
	.identity = identity,
	.takes_parameters = true,
	.is_noise = is_log_line,
	.advice = advice,
	.silent_advice = "the cluster must answer, and 'kubectl exec -i %s -- sh' get a shell "
			 "that reads its input",
};

#define ROW(name_, summary_)                                          \
	{                                                             \
		.about = {.name = (name_),                            \
			.form = name_ "://[container@]pod[/dir]",     \
			.summary = (summary_),                        \
			.options = options,                           \
			.shared_options = remote_options},            \
		.open = remote_open, .end = &kube_end, .names = list, \
	}

const struct scheme kube_scheme =
	ROW("kube", "a container of a pod of Kubernetes; the pod may be deploy.NAME");
const struct scheme kubectl_scheme = ROW("kubectl", "the same");
