/*
 * coronet-run: runs a program of the distribution on the stack, unchanged.
 *
 * It checks the options, hands them on in the environment, and becomes the
 * program, with a library preloaded that opens the stack before main() runs
 * (netstack/sockets/run_main.c).
 */
#include <argp.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <coronet/net.h>

#include "apps/common/opts.h"

#define LIBRARY "coronet-run.so"
#define BEHIND	"\x1f" /* follows each word in CORONET_RUN */

static void fail_run(const char *program, const char *why)
{
	fprintf(stderr, "coronet-run: %s: %s\n", program, why);
	exit(OPT_EXIT_USAGE);
}

static void set_or_fail(const char *name, const char *value)
{
	if (setenv(name, value, 1) < 0)
		fail_run(name, strerror(errno));
}

static int check_prefixes(const struct opt *opt, const char *text, void *base,
			  struct opt_error *error)
{
	char *copy = strdup(text), *rest = copy, *word;
	struct net_addr addr;
	int err = copy && *text ? 0 : -EINVAL;

	while (err == 0 && (word = strsep(&rest, ",")))
		err = net_addr_parse_prefix(word, &addr);
	free(copy);
	return err;
}

/* Read by the library as well, before the program's main(). */
static struct run_opts {
	struct net_opts net;
	bool children, in_child;
} run;

#define AT(member) OPT_AT(struct run_opts, member)

static const struct opt rows[] = {
	{"sockets", OPT_CUSTOM, .arg = "PREFIXES", .read = check_prefixes,
	 .expected = "prefixes, separated by commas",
	 .example = "10.9.0.0/16,fd00::/64",
	 .help = "Put sockets on the stack that bind or connect to these "
		 "addresses, for example 10.9.0.0/16,0.0.0.0/32 (default: "
		 "sockets that connect to addresses that the stack has a route "
		 "to, or bind to its addresses, 0.0.0.0 or ::)"},
	{"children", OPT_FLAG, AT(children), .arg = NULL,
	 .help = "Give each program that PROGRAM starts a stack of its own; "
		 "only one at a time can use a link (default: they use the "
		 "kernel's sockets)"},
	{"in-child", OPT_FLAG, AT(in_child), .arg = NULL,
	 .help = "Open the stack in the first child process that waits for "
		 "clients: for servers whose first process only listens, such "
		 "as nginx with one worker process (default: open it before "
		 "PROGRAM starts)"},
};

OPT_SET(run_opts, rows, 0x5000, NULL)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	if (key != ARGP_KEY_INIT)
		return run_opts_parse(key, arg, state);
	opt_begin(state);
	state->child_inputs[0] = &run.net;
	return 0;
}

/* ---- finding the program among the arguments ---- */

static bool is_prefix(const char *name, const char *word, size_t len)
{
	return strncmp(name, word, len) == 0;
}

/* Does the option that the word names, perhaps cut short, have a value? */
static bool takes_value(const struct argp *argp, const char *word)
{
	bool is_long = word[1] == '-';
	size_t len = strlen(word + 2);

	for (const struct argp_option *o = argp->options;
	     o && (o->name || o->key || o->doc); o++)
		if (o->arg &&
		    (is_long ? o->name && is_prefix(o->name, word + 2, len)
			     : o->key == word[1] && !word[2]))
			return true;
	for (const struct argp_child *c = argp->children; c && c->argp; c++)
		if (takes_value(c->argp, word))
			return true;
	return false;
}

static int find_program(const struct argp *argp, int argc, char **argv)
{
	int i = 1;

	while (i < argc && argv[i][0] == '-' && argv[i][1]) {
		if (strcmp(argv[i], "--") == 0)
			return i + 1;
		if (!strchr(argv[i], '=') && takes_value(argp, argv[i]))
			i++;
		i++;
	}
	return i;
}

/* ---- checks of the program ---- */

/* Finds a program as execvp() does. */
static const char *path_of(const char *program, char *path)
{
	const char *dirs = getenv("PATH");

	if (strchr(program, '/'))
		return program;
	for (dirs = dirs ? dirs : "/usr/bin:/bin"; *dirs;
	     dirs += *dirs == ':') {
		size_t len = strcspn(dirs, ":");

		snprintf(path, PATH_MAX, "%.*s/%s", (int)len, dirs, program);
		if (access(path, X_OK) == 0)
			return path;
		dirs += len;
	}
	return NULL;
}

/* A script is not checked: the kernel finds its interpreter. */
static void check_elf(int fd, const char *program)
{
	Elf64_Ehdr elf;
	Elf64_Phdr part;
	bool dynamic = false;

	if (pread(fd, &elf, sizeof(elf), 0) < (ssize_t)sizeof(elf) ||
	    memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0)
		return;
	if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_machine != EM_X86_64)
		fail_run(program, "not a program for x86_64");
	for (unsigned i = 0; i < elf.e_phnum; i++)
		if (pread(fd, &part, sizeof(part),
			  (off_t)(elf.e_phoff + i * sizeof(part))) ==
		    (ssize_t)sizeof(part))
			dynamic |= part.p_type == PT_INTERP;
	if (!dynamic)
		fail_run(program, "it is linked statically, so that the calls "
				  "of its C library cannot be replaced");
}

static void check_program(const char *program)
{
	char buf[PATH_MAX];
	const char *path = path_of(program, buf);
	struct stat st;
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (!path)
		fail_run(program, "no such program in $PATH");
	if (fd < 0 && errno != EACCES)
		fail_run(program, strerror(errno));
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && geteuid() != 0 &&
	    (st.st_mode & (S_ISUID | S_ISGID) ||
	     fgetxattr(fd, "security.capability", NULL, 0) > 0))
		fail_run(program,
			 "it has privileges of its own (set-user-ID or "
			 "capabilities), and the linker preloads nothing "
			 "into such programs");
	check_elf(fd, program);
	close(fd);
}

/* ---- becoming the program ---- */

/* Finds the library beside this program's build, or where it is installed. */
static void find_library(char *path)
{
	char self[PATH_MAX] = {0};
	const char *dir;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		fail_run(LIBRARY, strerror(errno));
	dir = dirname(self);
	snprintf(path, PATH_MAX, "%s/../netstack/" LIBRARY, dir);
	if (access(path, R_OK) == 0)
		return;
	snprintf(path, PATH_MAX, "%s", CORONET_LIBDIR "/" LIBRARY);
	if (access(path, R_OK) != 0)
		fail_run(path, strerror(errno));
}

static void set_preload(void)
{
	const char *others = getenv("LD_PRELOAD");
	char path[PATH_MAX], all[2 * PATH_MAX];

	find_library(path);
	set_or_fail("CORONET_RUN_PRELOAD", others ? others : "");
	snprintf(all, sizeof(all), "%s%s%s%s", RUNTIME_OF_SANITIZERS, path,
		 others ? ":" : "", others ? others : "");
	set_or_fail("LD_PRELOAD", all);
	snprintf(all, sizeof(all), "%d", (int)getpid());
	set_or_fail("CORONET_RUN_PID", all);
}

static void hand_on(int argc, char **argv)
{
	size_t len = 1;
	char *words;

	for (int i = 1; i < argc; i++)
		len += strlen(argv[i]) + 1;
	words = calloc(1, len);
	if (!words)
		fail_run("options", strerror(errno));
	for (int i = 1; i < argc; i++)
		strcat(strcat(words, argv[i]), BEHIND);
	set_or_fail("CORONET_RUN", words);
	free(words);
}

/* Opens a stack without links, in place of the program's. */
static int check_options(void)
{
	struct net_stack *stack;
	int err = net_stack_open(&run.net, &stack);

	if (err < 0) {
		fprintf(stderr, "coronet-run: %s\n", run.net.error);
		return net_exit_status(err);
	}
	net_stack_run(stack);
	net_stack_close(stack);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&net_argp, 0, "Common options:", 1}, {0}};
	static const struct argp argp = {run_opts_options,
					 parse_key,
					 "PROGRAM [ARGUMENT...]",
					 "Runs a program with its TCP and UDP "
					 "sockets on a stack of its own.",
					 children,
					 run_opts_help,
					 NULL};
	int at = find_program(&argp, argc, argv), words;

	opts_set_version("coronet-run");
	opt_use_place(net_config_place);
	words = at < argc ? at : argc;
	if (words > 1 && strcmp(argv[words - 1], "--") == 0)
		words--;
	net_opts_init(&run.net);
	/* argp may take words out of order, so it gets none of PROGRAM's. */
	if (net_parse_args(&argp, words, argv, &run.net, &run) < 0) {
		if (run.net.error[0]) /* or argp has said it */
			fprintf(stderr, "coronet-run: %s\n", run.net.error);
		return OPT_EXIT_USAGE;
	}
	if (run.net.user || run.net.seccomp) {
		fprintf(stderr,
			"coronet-run: --%s: PROGRAM decides this itself; leave "
			"the option out, and start coronet-run as another user "
			"or as a service\n",
			run.net.user ? "user" : "seccomp");
		return OPT_EXIT_USAGE;
	}
	if (at >= argc) {
		fprintf(stderr,
			"coronet-run: PROGRAM is missing: expected it and its "
			"arguments after the options, for example "
			"coronet-run --link tap:cn0 --addr 10.9.0.1/16 "
			"curl http://10.9.1.1/\n");
		return OPT_EXIT_USAGE;
	}
	if (run.children)
		set_or_fail("CORONET_RUN_CHILDREN", "1");
	if (run.in_child)
		set_or_fail("CORONET_RUN_IN_CHILD", "1");
	check_program(argv[at]);
	if (run.net.check)
		return check_options();
	hand_on(words, argv);
	set_preload();
	execvp(argv[at], argv + at);
	fail_run(argv[at], strerror(errno));
	return OPT_EXIT_USAGE;
}
