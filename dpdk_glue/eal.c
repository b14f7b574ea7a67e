/*
 * Starts and stops EAL, adds the links' devices, and pins the threads of
 * shards.
 */
#define ALLOW_EXPERIMENTAL_API /* rte_intr_instance_alloc() and its kin */
#include "dpdk_glue/glue_priv.h"
#include "dpdk_glue/bond.h"
#include "dpdk_glue/memif.h"
#include "dpdk_glue/memif_relay.h"
#include "dpdk_glue/burst_sync.h"
#include "dpdk_glue/flow.h"
#include "dpdk_glue/pci.h"
#include "dpdk_glue/tap.h"
#include "dpdk_glue/vlan.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <linux/magic.h>
#include <time.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_pdump.h>

#define MAX_ARGS     96
#define ARG_LEN	     512
#define CPUS_TEXT    96	 /* of a list of CPUs in an error */
#define MEMBERS_FROM 100 /* numbers of the devices in bonds */

static struct {
	bool started;
	bool huge;
	bool shared; /* other DPDK processes may attach */
	struct glue_link links[GLUE_MAX_LINKS];
	char devices[GLUE_MAX_LINKS][GLUE_PORT_NAME_MAX +
				     1]; /* EAL's name of each link's device */
	unsigned n_links;
	unsigned n_shards;
	int lcores[GLUE_MAX_SHARDS]; /* -1: not pinned */
	unsigned queues[GLUE_MAX_LINKS];
	/* EAL's names of what is in each bond */
	char members[GLUE_MAX_LINKS][GLUE_BOND_MEMBERS][GLUE_PORT_NAME_MAX + 1];
	/* the links, with members in the place of their bond */
	struct glue_link parts[GLUE_MAX_LINKS * GLUE_BOND_MEMBERS];
	unsigned n_parts;
	cpu_set_t cpus; /* those the process may run on */
	unsigned mtu;
	int64_t tsc_start;
	double ns_per_tick;
	char note[512]; /* a line for the log once every link is open, or "" */
} eal;

/* The arguments under construction; storage is kept for EAL's lifetime. */
struct args {
	char text[MAX_ARGS][ARG_LEN];
	char *argv[MAX_ARGS + 1];
	int n;
};

__attribute__((format(printf, 2, 3))) static void
args_add(struct args *args, const char *format, ...)
{
	va_list ap;

	if (args->n == MAX_ARGS)
		return;
	va_start(ap, format);
	vsnprintf(args->text[args->n], ARG_LEN, format, ap);
	va_end(ap);
	args->argv[args->n] = args->text[args->n];
	args->n++;
}

/* "0,1,5" */
static void format_cpus(const cpu_set_t *set, char *list, size_t room)
{
	size_t used = 0;

	list[0] = '\0';
	for (int cpu = 0; cpu < CPU_SETSIZE && used < room - 8; cpu++)
		if (CPU_ISSET(cpu, set))
			used += (size_t)snprintf(list + used, room - used,
						 "%s%d", used ? "," : "", cpu);
}

static void add_cpus(struct args *args, int lcore)
{
	char list[ARG_LEN / 2];
	cpu_set_t set;

	if (lcore >= 0) {
		args_add(args, "--lcores=0@%d", lcore);
		return;
	}
	CPU_ZERO(&set);
	sched_getaffinity(0, sizeof(set), &set);
	format_cpus(&set, list, sizeof(list));
	args_add(args, "--lcores=0@(%s)", list);
}

/* Is a word after -- EAL's option for a card? */
static bool names_card(const char *word)
{
	return strncmp(word, "-a", 2) == 0 || strncmp(word, "--allow", 7) == 0;
}

/* The card of such a word, from which keys follow; next: the word after it. */
static const char *card_of(const char *word, const char *next)
{
	size_t option = word[1] == '-' ? strlen("--allow") : strlen("-a");

	if (!names_card(word))
		return NULL;
	return word[option] ? word + option + (word[option] == '=') : next;
}

/* Locks the cards of UIO among the links and among the words after --. */
static int claim_cards(const struct glue_eal_conf *conf, char *err,
		       size_t err_len)
{
	int rc = 0;

	for (unsigned i = 0; i < eal.n_parts && rc == 0; i++)
		if (eal.parts[i].kind == GLUE_LINK_PCI)
			rc = glue_pci_claim("", eal.parts[i].name, err,
					    err_len);
	for (unsigned i = 0; i < conf->n_extra && rc == 0; i++) {
		const char *last =
			i + 1 < conf->n_extra ? conf->extra[i + 1] : NULL;
		const char *card = card_of(conf->extra[i], last);
		char address[32];

		if (!card)
			continue;
		snprintf(address, sizeof(address), "%s%.*s",
			 strchr(card, ':') == strrchr(card, ':') ? "0000:" : "",
			 (int)strcspn(card, ","), card);
		rc = glue_pci_claim("", address, err, err_len);
	}
	return rc;
}

static void build_args(struct args *args, const struct glue_eal_conf *conf)
{
	bool pci = false;

	args_add(args, "coronet");
	add_cpus(args, eal.lcores[0]);
	args_add(args, "--no-telemetry");
	for (unsigned i = 0; i < eal.n_parts; i++)
		if (eal.parts[i].kind == GLUE_LINK_PCI) {
			args_add(args, "-a");
			args_add(args, "%s", eal.parts[i].name);
			pci = true;
		}
	for (unsigned i = 0; i < conf->n_extra; i++)
		pci |= names_card(conf->extra[i]);
	if (!pci) {
		args_add(args, "--no-pci");
		args_add(args, "--iova-mode=va");
	}
	if (conf->prefix) {
		args_add(args, "--proc-type=primary");
		args_add(args, "--file-prefix=%s", conf->prefix);
	} else if (eal.huge) {
		args_add(args, "--in-memory");
		args_add(args, "--single-file-segments");
		/* EAL would open any mounted hugetlbfs, which it does not need,
		 * and stop if it may not: this folder is none. */
		args_add(args, "--huge-dir=/proc");
	} else {
		/* what --in-memory does for hugepages */
		args_add(args, "--no-huge");
		args_add(args, "--no-shconf");
		args_add(args, "-m");
		args_add(args, "%u", conf->mem_mib);
	}
	for (unsigned i = 0; i < conf->n_extra; i++)
		args_add(args, "%s", conf->extra[i]);
}

/*
 * libxdp puts a dispatcher before a program, so that several programs share an
 * interface, and keeps it in a bpffs. Without one that is mounted and writable,
 * skip the dispatcher: nobody else has a program on our interface.
 */
static void prepare_xdp(void)
{
	struct statfs fs;

	if (statfs("/sys/fs/bpf", &fs) < 0 || fs.f_type != BPF_FS_MAGIC ||
	    access("/sys/fs/bpf", W_OK) < 0)
		setenv("LIBXDP_SKIP_DISPATCHER", "1", 0);
}

/* Checks that EAL has made a port of this name. */
static int check_given(const char *given, char *err, size_t err_len)
{
	char names[256] = "", name[RTE_ETH_NAME_MAX_LEN];
	size_t used = 0;
	uint16_t id;

	if (rte_eth_dev_get_port_by_name(given, &id) == 0)
		return 0;
	RTE_ETH_FOREACH_DEV(id)
	if (rte_eth_dev_get_name_by_port(id, name) == 0 &&
	    used + strlen(name) + 3 < sizeof(names))
		used += (size_t)snprintf(names + used, sizeof(names) - used,
					 "%s%s", used ? ", " : "", name);
	return glue_fail(err, err_len, -ENODEV,
			 "link port:%s: DPDK has no port of that name (it has: "
			 "%s); give it one after --, as in -- "
			 "--vdev=net_bonding0,mode=1,...",
			 given, used ? names : "none");
}

/* Gives DPDK a device for a link; its name goes to `device`. */
static int plug_device(const struct glue_link *link, unsigned index,
		       unsigned queues, char *device, char *err, size_t err_len)
{
	bool serves = link->kind == GLUE_LINK_MEMIF && link->server;
	char args[ARG_LEN], inner[GLUE_PATH_MAX];
	uint16_t taken;

	if (serves && glue_relay_inner_path(link->name, inner) < 0)
		return glue_fail(err, err_len, -ENAMETOOLONG,
				 "link memif:%s: the directory's path is too "
				 "long; choose a shorter one",
				 link->name);
	glue_vdev_describe(link, index, queues, serves ? inner : link->name,
			   device, args, sizeof(args));
	if (link->kind == GLUE_LINK_PORT)
		return check_given(device, err, err_len);
	if (link->kind == GLUE_LINK_PCI)
		return 0;
	if (rte_eth_dev_get_port_by_name(device, &taken) == 0)
		return glue_fail(err, err_len, -EEXIST,
				 "link %s:%s: the words after -- make a port "
				 "%s, but this link needs that name; give that "
				 "port another number",
				 glue_link_kind_name(link->kind), link->name,
				 device);
	if (link->kind == GLUE_LINK_TAP)
		glue_tap_prepare();
	if (link->kind == GLUE_LINK_AF_XDP)
		prepare_xdp();
	return glue_vdev_make(link, index, queues, inner, device, args, err,
			      err_len);
}

/* A bond's members come first, and are numbered apart from other links. */
static int plug_link(unsigned index, char *err, size_t err_len)
{
	const struct glue_link *link = &eal.links[index];
	struct glue_link parts[GLUE_BOND_MEMBERS];
	unsigned n = 0, queues = glue_queues_wanted(link);
	int rc = 0;

	if (link->kind == GLUE_LINK_BOND)
		n = glue_link_parts(link, parts);
	for (unsigned i = 0; i < n; i++)
		queues = RTE_MIN(queues, glue_queues_wanted(&parts[i]));
	for (unsigned i = 0; i < n && rc == 0; i++)
		rc = plug_device(&parts[i], MEMBERS_FROM + 10 * index + i,
				 queues, eal.members[index][i], err, err_len);
	eal.queues[index] = queues;
	if (rc == 0 && n == 0)
		return plug_device(link, index, queues, eal.devices[index], err,
				   err_len);
	snprintf(eal.devices[index], sizeof(eal.devices[index]),
		 "net_bonding%u", index);
	if (rc == 0)
		rc = glue_bond_make(index, eal.devices[index],
				    eal.members[index], err, err_len);
	return rc;
}

static void unplug_link(unsigned index)
{
	struct glue_link parts[GLUE_BOND_MEMBERS];
	const struct glue_link *link = &eal.links[index];
	unsigned n = 0;

	if (link->kind == GLUE_LINK_BOND)
		n = glue_link_parts(link, parts);
	if (n > 0 || !glue_link_is_port(link))
		rte_eal_hotplug_remove("vdev", eal.devices[index]);
	for (unsigned i = 0; i < n; i++)
		if (!glue_link_is_port(&parts[i]))
			rte_eal_hotplug_remove("vdev", eal.members[index][i]);
}

/* Checks that DPDK has a port for each card; log has what it printed. */
static int check_cards(const struct glue_captured *log, char *err,
		       size_t err_len)
{
	char reason[256], why[512];
	uint16_t id;

	for (unsigned i = 0; i < eal.n_parts; i++) {
		const char *address = eal.parts[i].name;

		if (eal.parts[i].kind != GLUE_LINK_PCI ||
		    rte_eth_dev_get_port_by_name(address, &id) == 0)
			continue;
		reason[0] = '\0';
		if (glue_capture_has(log, address))
			glue_capture_line(log, reason, sizeof(reason));
		glue_pci_explain("", address, reason, why, sizeof(why));
		return glue_fail(err, err_len, -ENODEV, "link pci:%s: %s",
				 address, why);
	}
	return 0;
}

static int start_eal(const struct glue_eal_conf *conf, char *err,
		     size_t err_len)
{
	static struct args args;
	char reason[256];
	struct glue_captured log;
	sigset_t pipe, old;
	int rc;

	/* DPDK's threads write to sockets whose other end may be gone. */
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &old);
	args.n = 0;
	build_args(&args, conf);
	optind = 1;
	rte_log_set_global_level(RTE_LOG_WARNING);
	glue_capture_start(&log);
	rc = rte_eal_init(args.n, args.argv);
	glue_capture_end(&log);
	glue_capture_line(&log, reason, sizeof(reason));
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc < 0)
		return glue_fail(
			err, err_len, rte_errno == ENOMEM ? -ENOMEM : -EIO,
			"DPDK's EAL did not start: %s%s%s%s", reason,
			conf->prefix ? " (is a hugetlbfs mounted?)" : "",
			conf->n_extra ? " (check the words after --)" : "",
			glue_huge_hint());
	glue_fork_start();
	return check_cards(&log, err, err_len);
}

static void start_clock(void)
{
	eal.ns_per_tick = 1e9 / (double)rte_get_tsc_hz();
	eal.tsc_start = (int64_t)rte_rdtsc();
}

/* Chooses the CPUs that the user named, or -1, for each shard. */
static int choose_lcores(const struct glue_eal_conf *conf, char *err,
			 size_t err_len)
{
	const int *lcores = conf->lcores ? conf->lcores : &conf->lcore;
	unsigned n = conf->lcores ? conf->n_lcores : 1;
	unsigned n_shards = conf->n_shards ? conf->n_shards : n;
	char list[CPUS_TEXT];
	cpu_set_t used;

	if (n_shards < 1 || n_shards > GLUE_MAX_SHARDS)
		return glue_fail(err, err_len, -EINVAL,
				 "%u shards; expected 1 to %d", n_shards,
				 GLUE_MAX_SHARDS);
	if (n > n_shards)
		return glue_fail(
			err, err_len, -EINVAL,
			"%u lcores for %u shards; expected one for each shard",
			n, n_shards);
	CPU_ZERO(&eal.cpus);
	CPU_ZERO(&used);
	sched_getaffinity(0, sizeof(eal.cpus), &eal.cpus);
	for (unsigned i = 0; i < n_shards; i++) {
		int cpu = i < n ? lcores[i] : -1;

		eal.lcores[i] = cpu < 0 ? -1 : cpu;
		if (cpu < 0)
			continue;
		if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &eal.cpus)) {
			format_cpus(&eal.cpus, list, sizeof(list));
			return glue_fail(err, err_len, -EINVAL,
					 "--lcore %d: this process may not run "
					 "on that CPU; it may run on %s",
					 cpu, list);
		}
		if (CPU_ISSET(cpu, &used))
			return glue_fail(err, err_len, -EINVAL,
					 "--lcores: CPU %d is named twice; a "
					 "shard needs one of its own",
					 cpu);
		CPU_SET(cpu, &used);
	}
	eal.n_shards = n_shards;
	return 0;
}

const char *glue_huge_hint(void)
{
	return eal.huge ? "; if another process has just taken the hugepages, "
			  "start again or use --huge off"
			: "";
}

/* Free pages that cannot be used are worth a line; their absence is not. */
static void choose_huge(const struct glue_eal_conf *conf)
{
	char why[256];

	eal.huge = !conf->huge_off &&
		   glue_huge_take(conf->mem_mib, why, sizeof(why));
	if (eal.huge || conf->huge_off || !why[0])
		return;
	snprintf(eal.note, sizeof(eal.note),
		 "running without hugepages: %u MiB are free, but %s; "
		 "see docs/deploy.md",
		 conf->mem_mib, why);
}

/* Logs the note only now: earlier, the line might end up among those that
 * glue_capture_start() captures. */
void glue_eal_links_open(void)
{
	glue_huge_settle();
	if (eal.note[0])
		glue_log_line("%s", eal.note);
	eal.note[0] = '\0';
}

int glue_eal_start(const struct glue_eal_conf *conf, char *err, size_t err_len)
{
	int rc;

	if (eal.started)
		return glue_fail(err, err_len, -EALREADY,
				 "DPDK's EAL runs already: a process can have "
				 "only one stack");
	if (conf->n_links == 0 || conf->n_links > GLUE_MAX_LINKS)
		return glue_fail(err, err_len, -EINVAL,
				 "%u links given; expected 1 to %d",
				 conf->n_links, GLUE_MAX_LINKS);
	rc = choose_lcores(conf, err, err_len);
	if (rc < 0)
		return rc;
	eal.n_parts = 0;
	for (unsigned i = 0; i < conf->n_links; i++)
		eal.n_parts += glue_link_parts(&conf->links[i],
					       &eal.parts[eal.n_parts]);
	for (unsigned i = 0; i < eal.n_parts; i++) {
		const struct glue_link *part = &eal.parts[i];

		rc = glue_link_check(part, err, err_len);
		if (rc == 0)
			rc = glue_queues_check(part, err, err_len);
		if (rc == 0 && part->kind == GLUE_LINK_PCI)
			rc = glue_pci_check("", part->name, conf->mem_mib, err,
					    err_len);
		if (rc < 0)
			return rc;
	}
	rc = glue_links_await(eal.parts, eal.n_parts, err, err_len);
	if (rc < 0)
		return rc;
	memcpy(eal.links, conf->links, conf->n_links * sizeof(*conf->links));
	eal.n_links = conf->n_links;
	eal.mtu = conf->mtu;
	glue_vdev_own(conf->uid, conf->gid);
	choose_huge(conf);
	if (conf->prefix && conf->huge_off)
		return glue_fail(
			err, err_len, -EINVAL,
			"--dpdk-prefix %s: other processes can attach only to "
			"hugepages, so it cannot be used with --huge off",
			conf->prefix);
	if (conf->prefix && !eal.huge)
		return glue_fail(
			err, err_len, -ENOMEM,
			"--dpdk-prefix %s: other processes can attach only to "
			"hugepages, but %u MiB of 2 MiB pages are not free or "
			"cannot be used; see docs/deploy.md",
			conf->prefix, conf->mem_mib);
	rc = claim_cards(conf, err, err_len);
	if (rc == 0)
		rc = start_eal(conf, err, err_len);
	if (rc < 0) {
		glue_pci_release();
		return rc;
	}
	eal.started = true;
	glue_log_settle();
	start_clock();
	glue_flow_start(eal.n_shards);
	glue_sync_start(); /* optional: it needs membarrier(2) */
	for (unsigned i = 0; i < eal.n_links; i++) {
		rc = plug_link(i, err, err_len);
		if (rc < 0) {
			eal.n_links = i;
			return rc;
		}
	}
	glue_log_redirect(conf->log);
	eal.shared = conf->prefix && rte_pdump_init() == 0;
	if (conf->prefix && !eal.shared)
		return glue_fail(err, err_len, -EIO,
				 "--dpdk-prefix %s: DPDK's packet capture did "
				 "not start: %s",
				 conf->prefix, rte_strerror(rte_errno));
	return 0;
}

int glue_thread_enter(unsigned shard, char *err, size_t err_len)
{
	cpu_set_t set = eal.cpus;

	if (shard >= eal.n_shards)
		return glue_fail(err, err_len, -EINVAL,
				 "shard %u of %u: there is no such shard",
				 shard, eal.n_shards);
	if (shard == 0)
		return 0;
	if (eal.lcores[shard] >= 0) {
		CPU_ZERO(&set);
		CPU_SET(eal.lcores[shard], &set);
	}
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	/* get an lcore number, and with it a cache in every pool of frames */
	if (rte_thread_register() < 0)
		return glue_fail(err, err_len, -ENOMEM,
				 "shard %u: DPDK cannot register another "
				 "thread: %s",
				 shard, rte_strerror(rte_errno));
	glue_sync_start();
	return 0;
}

void glue_thread_leave(void)
{
	glue_sync_polls(false);
	rte_thread_unregister();
}

unsigned glue_thread_hand_over(void)
{
	unsigned number = rte_lcore_id();

	RTE_PER_LCORE(_lcore_id) = LCORE_ID_ANY;
	glue_sync_polls(false);
	return number;
}

void glue_thread_take_over(unsigned number)
{
	RTE_PER_LCORE(_lcore_id) = number;
	glue_sync_polls(true);
}

static void park_thread(void *arg)
{
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

/*
 * DPDK's interrupt thread outlives rte_eal_cleanup(), which unmaps memory that
 * this thread uses: keep it in a callback of ours from here to the end. (An
 * alarm won't do: the cleanup would wait until it ends.)
 */
static void park_interrupt_thread(void)
{
	static const struct timespec nap = {.tv_nsec = 50000};
	struct rte_intr_handle *handle =
		rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	int fd = eventfd(1, EFD_CLOEXEC);
	bool parked = false;
	int err = -ENOMEM;

	if (handle && fd >= 0 && rte_intr_fd_set(handle, fd) == 0 &&
	    rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) == 0)
		err = rte_intr_callback_register(handle, park_thread, &parked);
	while (err == 0 && !__atomic_load_n(&parked, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	rte_intr_instance_free(handle); /* DPDK has a copy */
}

void glue_eal_stop(void)
{
	glue_huge_settle();
	if (!eal.started)
		return;
	glue_memif_unserve();
	glue_log_restore();
	if (eal.shared)
		rte_pdump_uninit();
	rte_log_set_global_level(RTE_LOG_EMERG);
	for (unsigned i = 0; i < eal.n_links; i++) {
		const struct glue_link *link = &eal.links[i];

		unplug_link(i);
		if (link->server && link->kind == GLUE_LINK_VHOST)
			unlink(link->name);
	}
	park_interrupt_thread();
	rte_eal_cleanup();
}

bool glue_eal_huge(void)
{
	return eal.huge;
}

const struct glue_link *glue_eal_link(unsigned index)
{
	return index < eal.n_links ? &eal.links[index] : NULL;
}

unsigned glue_eal_shards(void)
{
	return eal.n_shards;
}

int glue_eal_lcore(unsigned shard)
{
	return eal.lcores[shard];
}

unsigned glue_eal_mtu(void)
{
	return eal.mtu;
}

const cpu_set_t *glue_eal_cpus(void)
{
	return &eal.cpus;
}

unsigned glue_eal_link_queues(unsigned index)
{
	return eal.queues[index];
}

bool glue_eal_port_id(unsigned index, uint16_t *port_id)
{
	return index < eal.n_links &&
	       rte_eth_dev_get_port_by_name(eal.devices[index], port_id) == 0;
}

int64_t glue_now_ns(void)
{
	int64_t ticks = (int64_t)rte_rdtsc() - eal.tsc_start;

	return (int64_t)((double)ticks * eal.ns_per_tick);
}
