/*
 * The stack: opening, the loop, closing.
 */
#include "netstack/api/api.h"
#include "netstack/conn/end.h"
#include "netstack/program/log.h"
#include "netstack/program/privileges.h"
#include "netstack/resolve/resolve.h"
#include "netstack/shard/shard.h"

#include "dpdk_glue/pcap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <coronet/coro_io.h>
#include <coronet/net_user.h>

#define DRAIN_NS INT64_C(1000000000)

/* In the section that every shard has a copy of: see shard_var.h. */
static NET_SHARD_VAR struct net_stack original;
static NET_SHARD_VAR int64_t drain_until_ns;
#define drain_until_ns NET_SHARD(drain_until_ns)
extern char __start_net_shard[],
	__stop_net_shard[] __attribute__((visibility("hidden")));

_Thread_local struct net_stack *net_shard_here = &original;

int64_t net_clock_ns(void)
{
	return glue_now_ns();
}

int64_t net_now_ns(const struct net_stack *stack)
{
	return stack->now_ns;
}

static int64_t sched_clock_ns(void *ctx)
{
	return glue_now_ns();
}

int net_exit_status(int err)
{
	if (err == 0)
		return 0;
	return err == -EINVAL || net_program_checks() ? 2 : 1;
}

/* ---- opening ---- */

static bool few_cpus(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) <= 2;
}

static int start_dpdk(struct net_opts *opts)
{
	struct glue_link links[NET_MAX_LINKS];
	struct glue_eal_conf conf = {
		.links = links,
		.n_links = opts->n_links,
		.lcore = -1,
		.lcores = opts->lcores,
		.n_lcores = opts->n_lcores,
		.n_shards = opts->shards,
		.huge_off = opts->huge_off,
		.prefix = opts->dpdk_prefix,
		.mtu = opts->mtu,
		.mem_mib = 32,
		.extra = opts->eal_args,
		.n_extra = opts->n_eal_args,
		.log = net_log_dpdk,
	};
	int err;

	net_privileges_ids(&conf.uid, &conf.gid);
	for (unsigned i = 0; i < opts->n_links; i++) {
		err = glue_link_parse(opts->links[i], &links[i], opts->error,
				      sizeof(opts->error));
		if (err < 0)
			return err;
		conf.mem_mib +=
			glue_link_shards_mem_mib(&links[i], opts->shards);
	}
	return glue_eal_start(&conf, opts->error, sizeof(opts->error));
}

static int check_opts(struct net_opts *opts)
{
	if (opts->n_links == 0) {
		snprintf(opts->error, sizeof(opts->error),
			 "no --link given: name the NIC, as in --link "
			 "memif:/tmp/e.sock,role=server");
		return -EINVAL;
	}
	if (opts->n_addrs == 0) {
		snprintf(opts->error, sizeof(opts->error),
			 "no --addr given: name an address, as in --addr "
			 "10.9.0.1/16");
		return -EINVAL;
	}
	if (opts->cc && net_cc_number(opts->cc) < 0) {
		snprintf(opts->error, sizeof(opts->error),
			 "there is no congestion control '%s'", opts->cc);
		return -EINVAL;
	}
	return 0;
}

/* The tables of a shard, to which pointers of struct net_stack point. */
struct net_tables {
	struct netif netifs[NET_IFADDRS];
	struct net_ifaddr addrs[NET_IFADDRS];
	struct net_route_entry routes[NET_ROUTES];
	struct net_neighbour neighbours[NET_NEIGHBOURS];
	struct pbuf *looped[NET_LOOP_PKTS];
};

static int make_tables(struct net_stack *stack)
{
	struct net_tables *tables = calloc(1, sizeof(*tables));

	if (!tables)
		return -ENOMEM;
	stack->tables = tables;
	stack->netifs = tables->netifs;
	stack->addrs = tables->addrs;
	stack->routes = tables->routes;
	stack->neighbours = tables->neighbours;
	stack->loop.ring = tables->looped;
	return 0;
}

static void free_tables(struct net_stack *stack)
{
	free(stack->tables);
	stack->tables = NULL;
}

void net_explain(struct net_opts *opts, int err)
{
	if (opts->error[0])
		return;
	snprintf(opts->error, sizeof(opts->error), "%s%s",
		 err == -EAGAIN ? "no thread can be made (ulimit -u, "
				  "pids.max): "
				: "",
		 strerror(-err));
}

static int set_levels(struct net_opts *opts, bool all_known)
{
	char reason[256];
	int err;

	if (!opts->log_level)
		return 0;
	err = net_log_set_levels(opts->log_level, all_known, reason,
				 sizeof(reason));
	if (err < 0)
		snprintf(opts->error, sizeof(opts->error),
			 "--log-level '%.150s': %s", opts->log_level, reason);
	return err < 0 ? -EINVAL : 0;
}

/* Opens the log. DPDK registers its own components later, when it starts. */
static int open_log(struct net_opts *opts)
{
	int err = net_log_to(opts->log_to);

	if (err < 0)
		snprintf(opts->error, sizeof(opts->error),
			 "--log-to '%.300s': %s: expected stderr, journal or "
			 "a file that can be written%s",
			 opts->log_to, strerror(-err),
			 err == -ENXIO ? ", or a FIFO that has a reader" : "");
	if (err < 0)
		return err == -ENOMEM ? err : -EINVAL;
	err = net_log_open();
	return err == 0 ? set_levels(opts, false) : err;
}

int net_program_open(struct net_opts *opts)
{
	int err = check_opts(opts);

	if (err == 0)
		err = net_privileges_check(opts);
	if (err < 0)
		return err;
	/* Prepare before DPDK, which may pin threads that are made later. */
	net_watchdog_prepare();
	err = net_user_files_begin(opts);
	if (err == 0)
		err = open_log(opts);
	if (err == 0)
		err = net_control_open(opts);
	net_user_files_end();
	if (err == 0)
		err = net_clients_open(opts->shards, opts->max_conns);
	if (err == 0)
		err = start_dpdk(opts);
	if (err == 0)
		err = set_levels(opts, true);
	if (err < 0) {
		net_program_close();
		net_explain(opts, err);
	}
	return err;
}

void net_program_close(void)
{
	net_control_close();
	glue_pcap_close();
	glue_eal_stop();
	net_clients_close();
	net_log_close();
}

void net_shard_enter(struct net_stack *stack)
{
	net_shard_here = stack ? stack : &original;
	net_shard_distance =
		(intptr_t)((uintptr_t)net_shard_here - (uintptr_t)&original);
}

static int enter_copy(void)
{
	intptr_t distance;
	int err = net_shard_copy_new(&distance);

	if (err == 0)
		net_shard_enter(
			(void *)((uintptr_t)&original + (uintptr_t)distance));
	return err;
}

static void leave_copy(void)
{
	intptr_t distance = net_shard_distance;

	net_shard_enter(NULL);
	net_shard_copy_free(distance);
}

/* Gives a shard its part of what the program has; the first get the rest. */
int net_shard_open(struct net_opts *opts, unsigned shard)
{
	static const struct coro_sched_attr attr = {.clock_ns = sched_clock_ns};
	struct net_stack *stack;
	int err = enter_copy();

	if (err < 0)
		return err;
	stack = net_here();
	err = make_tables(stack);
	if (err < 0)
		goto fail;
	stack->shard = shard;
	stack->n_shards = opts->shards;
	stack->mtu = opts->mtu;
	stack->cc = (uint8_t)(opts->cc ? net_cc_number(opts->cc) : 0);
	stack->max_conns =
		LWIP_MAX(net_part_of(opts->max_conns, opts->shards, shard), 1);
	stack->max_counted =
		net_part_of(opts->counted_conns, opts->shards, shard);
	stack->now_ns = glue_now_ns();
	stack->adaptive = opts->poll == NET_POLL_ADAPTIVE ||
			  (opts->poll == NET_POLL_AUTO && few_cpus());
	if (shard == 0)
		stack->stats_ns = (int64_t)(opts->stats_s * 1e9);
	stack->next_stats_ns = stack->now_ns + stack->stats_ns;
	net_resolve_open(opts);
	err = coro_sched_open(&attr, &stack->sched);
	if (err < 0)
		goto fail;
	coro_offload_spare(); /* if the shard has a CPU of its own */
	coro_sched_advance(stack->sched, stack->now_ns);
	net_timers_set_clock();
	err = net_random_init();
	if (err == 0)
		err = net_listeners_init();
	if (err == 0)
		err = net_path_init();
	if (err == 0)
		err = net_demux_init(stack->max_conns);
	if (err < 0)
		goto fini_tables;
	err = net_output_init(stack->max_conns);
	if (err < 0)
		goto fini_demux;
	err = net_mem_init();
	if (err < 0)
		goto fini_output;
	net_memp_init();
	err = net_time_wait_init();
	if (err == 0)
		err = net_half_open_init();
	if (err == 0)
		err = net_view_init();
	if (err == 0)
		err = net_traces_keep(
			net_part_of(opts->trace_conns, opts->shards, shard));
	if (err == 0)
		err = net_link_open(opts);
	if (err == 0)
		err = net_budget_open(opts);
	if (err < 0)
		goto fini_mem;
	prctl(PR_SET_TIMERSLACK, 1UL);
	coro_sched_recognize(stack->sched, net_conn_recognize);
	err = net_watchdog_start(stack, opts->watchdog_ms);
	if (err < 0)
		goto fini_mem;
	net_idle_start(stack);
	net_stats_start();
	net_stacks_opened();
	return 0;

fini_mem:
	net_half_open_fini();
	net_time_wait_fini();
	net_link_close();
	net_view_fini();
	net_traces_close();
	net_mem_fini();
	net_budget_fini();
fini_output:
	net_output_fini();
fini_demux:
	net_demux_fini();
fini_tables:
	net_path_fini();
	net_listeners_fini();
	net_random_fini();
	coro_sched_close(stack->sched);
fail:
	free_tables(stack);
	leave_copy();
	return err;
}

int net_stack_open_args(int argc, char **argv, struct net_stack **out)
{
	struct net_opts opts;
	int err;

	net_opts_init(&opts);
	err = net_parse_args(NULL, argc, argv, &opts, NULL);
	opts.max_shards = NET_MAX_SHARDS;
	if (err == 0)
		err = net_stack_open(&opts, out);
	if (err < 0)
		fprintf(stderr, "%s: %s\n", program_invocation_short_name,
			opts.error);
	return err;
}

static void abort_conn(struct net_conn *conn)
{
	net_conn_discard(conn, -ECONNABORTED, NET_END_STOPPED);
}

/* Lets coroutines that were blocked on closed objects see the error and end. */
static void let_coroutines_end(struct net_stack *stack)
{
	for (unsigned i = 0; i < 100 && coro_sched_ready(stack->sched); i++)
		coro_sched_round(stack->sched);
}

/*
 * Frees the sessions that are left: connections that have ended, and whose
 * owner has not closed them. Their own memory goes with the slabs.
 */
static void forget_sessions(struct net_stack *stack)
{
	while (stack->tls_conns)
		stack->tls_conns->calls->forget(stack->tls_conns->conn);
}

/*
 * Closes all listeners. Coroutines that have not had their turn may call with
 * one yet, or close it, so the list that it returns keeps their memory.
 */
static struct net_listener *close_listeners(struct net_stack *stack)
{
	struct net_listener *closed = NULL;

	while (stack->listeners) {
		struct net_listener *listener = stack->listeners;

		listener->refs++;
		net_listener_close(listener);
		listener->next = closed;
		closed = listener;
	}
	return closed;
}

/* There are no coroutines any more. */
static void free_listeners(struct net_listener *closed)
{
	while (closed) {
		struct net_listener *listener = closed;

		closed = listener->next;
		listener->refs = 0;
		net_listener_put(listener);
	}
}

void net_shard_close(struct net_stack *stack)
{
	struct net_listener *closed;

	coro_sched_shut(stack->sched); /* what was posted runs while it can */
	stack->draining = true;
	closed = close_listeners(stack);
	net_half_open_reset_all();
	net_for_each_conn(abort_conn);
	net_udp_wake_all();
	net_poll_wake_all();
	coro_fd_cancel_all(stack->sched);
	net_resolve_stop();
	let_coroutines_end(stack);
	net_watchdog_stop(stack);
	net_half_open_fini();
	net_time_wait_fini();
	coro_sched_close(stack->sched);
	stack->sched = NULL;
	free_listeners(closed);
	forget_sessions(stack);
	net_resolve_fini();
	net_udp_fini();
	net_link_tx();
	net_link_close();
	net_clients_leave();
	net_view_fini();
	net_names_fini();
	net_traces_close();
	net_mem_fini();
	net_budget_fini();
	net_listeners_fini();
	net_output_fini();
	net_demux_fini();
	net_path_fini();
	net_random_fini();
	free_tables(stack);
	leave_copy();
	net_stacks_closed();
}

int net_spawn(struct net_stack *stack, const char *name, coro_fn fn, void *arg)
{
	struct coro_attr attr = {.name = name};

	return coro_spawn(stack->sched, &attr, fn, arg, NULL);
}

int net_link_wait(struct net_stack *stack, unsigned timeout_ms)
{
	int64_t deadline = stack->now_ns + (int64_t)timeout_ms * 1000000;

	NET_CHECK_STACK(stack);
	for (unsigned i = 0; i < stack->n_ports; i++)
		while (!glue_port_link_up(stack->ports[i].glue)) {
			int err = coro_sleep_ns(5000000);

			if (err < 0)
				return err;
			if (net_stack_stopping(stack))
				return -ECANCELED;
			if (stack->now_ns > deadline)
				return -ETIMEDOUT;
		}
	return 0;
}

/* ---- the loop ---- */

static void cancel_conn(struct net_conn *conn)
{
	net_conn_wake_all(conn);
}

static void start_drain(struct net_stack *stack)
{
	stack->draining = true;
	drain_until_ns = stack->now_ns + DRAIN_NS;
	for (struct net_listener *l = stack->listeners; l; l = l->next)
		net_listener_stop(l);
	net_for_each_conn(cancel_conn);
	net_udp_wake_all();
	net_poll_wake_all();
	coro_fd_cancel_all(stack->sched);
	net_resolve_stop();
}

static bool is_drained(struct net_stack *stack)
{
	if (stack->now_ns >= drain_until_ns)
		return true;
	if (coro_sched_ready(stack->sched))
		return false;
	return stack->n_conns == 0;
}

static void reset_if_broken(struct net_conn *conn)
{
	if (!conn->pcb.is_broken)
		return;
	conn->pcb.is_broken = 0;
	net_conn_discard(conn, -ECONNABORTED, NET_END_BROKEN);
}

/* Called if an assertion of lwIP has failed. */
cold static void reset_broken(struct net_stack *stack)
{
	net_for_each_conn(reset_if_broken);
	stack->any_broken = false;
}

unsigned net_stack_work(struct net_stack *stack)
{
	int64_t now_ns = glue_now_ns();
	unsigned work;

	stack->stats.rounds++;
	if (stack->empty_rounds == 0) {
		stack->stats.busy_ns += now_ns - stack->now_ns;
		net_hist_add(&stack->stats.round,
			     (uint64_t)(now_ns - stack->now_ns));
	}
	stack->now_ns = now_ns;
	net_timers_set_clock();
	work = net_link_rx();
	if (unlikely(stack->shares_ports))
		work += net_exception_poll();
	work += coro_sched_round(stack->sched);
	if (unlikely(stack->any_broken))
		reset_broken(stack); /* before it can send */
	net_output_all();
	if (work)
		net_link_tx(); /* an answer does not wait for the timers */
	coro_sched_advance(stack->sched, now_ns);
	net_link_tick();
	if (now_ns >= stack->next_budget_ns)
		net_budget_tick();
	net_link_tx();
	net_extbufs_release();
	return work;
}

void net_stack_round(struct net_stack *stack)
{
	net_idle(stack, net_stack_work(stack), CORO_FOREVER);
}

void net_shard_run(struct net_stack *stack)
{
	net_budget_start();
	while (!net_stack_stopping(stack)) {
		net_stack_round(stack);
		if (stack->stats_ns && stack->now_ns >= stack->next_stats_ns)
			net_shards_say_stats(stack);
	}
	start_drain(stack);
	while (!is_drained(stack))
		net_stack_round(stack);
}
