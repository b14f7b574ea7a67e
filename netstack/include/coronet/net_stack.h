/*
 * coronet: the program around the connections: addresses, options, opening and
 * running stacks, shards, statistics, packet capture, the log.
 *
 * coronet/net.h includes this header, and its opening comment holds here too:
 * unless its comment says otherwise, a call with a stack is made from that
 * stack's thread, a call without one from any thread, pointers are borrowed
 * until the call returns, and calls return 0 or a count, or a negative errno.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <coronet/coro.h>
#include <coronet/net_user.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct argp;
struct argp_state;

/* ---- addresses ---- */

#define NET_ADDR_TEXT_MAX 64 /* bytes, any address as text, NUL included */

/* An address and a port: plain data. A zero family means "any address". */
struct net_addr {
	uint8_t family;	    /* 0, 4 or 6 */
	uint8_t prefix_len; /* bits of the network, where that matters */
	uint16_t port;	    /* host byte order */
	uint8_t ip[16];	    /* network byte order; IPv4 takes the first 4 */
};

/*
 * Any local address, with a port in host byte order, for an argument as in
 * net_listen(stack, &net_addr_any(80), 0, &listener).
 */
#ifndef __cplusplus
#define net_addr_any(port_) ((const struct net_addr){.port = (port_)})
#else
/*
 * C++ has no compound literals, so operator& returns the address of a
 * temporary: the pointer is valid until the end of the statement.
 */
struct net_addr_any : net_addr {
	explicit net_addr_any(uint16_t port_) : net_addr()
	{
		port = port_;
	}
	const struct net_addr *operator&() const
	{
		return this;
	}
};
#endif

/*
 * Parses "10.9.0.1:80" or "[fd00::1]:80", with a port from 1 to 65535. If
 * default_port is 0 or more, the port and the brackets may be left out, and
 * default_port is used. Returns 0 with *out filled, or -EINVAL.
 */
int net_addr_parse(const char *text, int default_port, struct net_addr *out);

/*
 * Parses "10.9.0.1/16" or "fd00::1/64", with a prefix of at least one bit.
 * Returns 0 with *out filled, its port 0, or -EINVAL.
 */
int net_addr_parse_prefix(const char *text, struct net_addr *out);

/*
 * Writes "10.9.0.1:80", "[fd00::1]:80", or "*:80" for any address, to buf, and
 * returns buf. len: bytes of buf, with the NUL; NET_ADDR_TEXT_MAX is enough,
 * and a longer text is cut.
 */
char *net_addr_format(const struct net_addr *addr, char *buf, size_t len);

/* ---- opening a stack ---- */

#define NET_MAX_LINKS	  8
#define NET_MAX_SHARDS	  64
#define NET_MAX_ADDRS	  64
#define NET_MAX_ROUTES	  64
#define NET_MAX_RESOLVERS 8

/* A network that is reached through a gateway. */
struct net_route_opts {
	struct net_addr to;  /* with prefix_len; of 0 bits: all addresses */
	struct net_addr via; /* the gateway, of the same family */
	/* The source address of connections that set none, on the gateway's
	 * link; family 0: the stack chooses it as net_route() says. */
	struct net_addr source;
	/* The gateway's link, from 1, on which one of IPv4 may be outside every
	 * network; 0: the link whose network the gateway is in. */
	unsigned link;
};

/*
 * Parses "PREFIX via GATEWAY [dev LINK] [src ADDRESS]", as in "10.0.0.0/8 via
 * 10.9.0.254 dev 1 src 10.9.0.1". PREFIX: as for net_addr_parse_prefix() but
 * from 0 bits on, or "default", which means every address of the gateway's
 * family; no bit behind the prefix may be set. LINK: the number of a --link,
 * from 1 on. Returns 0 with *out filled; or -EINVAL, with one line in error
 * (len bytes with the NUL) that begins with the wrong word.
 */
int net_route_parse(const char *text, struct net_route_opts *out, char *error,
		    size_t len);

enum net_poll_mode { NET_POLL_AUTO, NET_POLL_BUSY, NET_POLL_ADAPTIVE };

/* Use of ECN (RFC 3168): the kernel's tcp_ecn of 2, 1 and 0. */
enum net_ecn {
	NET_ECN_ACCEPT, /* if the peer asks for it */
	NET_ECN_ON,	/* net_dial() asks for it as well */
	NET_ECN_OFF,
};

/*
 * The common options of all programs. Start from net_opts_init(). Strings and
 * arrays are borrowed until net_stack_open() returns.
 */
struct net_opts {
	const char *links[NET_MAX_LINKS]; /* "KIND:NAME[,key=value...]" */
	unsigned n_links;
	/* For each link: "tap:NAME[,key=value...]", the kernel interface that
	   gets the frames that are not for the stack; or NULL. */
	const char *exceptions[NET_MAX_LINKS];
	struct net_addr addrs[NET_MAX_ADDRS]; /* prefix_len 0: DHCP, SLAAC */
	uint8_t addr_links[NET_MAX_ADDRS];    /* index of the link it is on */
	unsigned n_addrs;
	/* The longest prefix decides, among equal ones the first. */
	struct net_route_opts routes[NET_MAX_ROUTES];
	unsigned n_routes;
	/* Gateways for all other networks; family 0: none. */
	struct net_addr gateway4, gateway6;
	/* Name servers of net_resolve() (coronet/net_resolve.h), with ports;
	   none: those of leases, or else of resolv.conf(5). */
	struct net_addr resolvers[NET_MAX_RESOLVERS];
	unsigned n_resolvers;
	/* A directory that keeps DHCP's addresses and SLAAC's secret for the
	   next start; NULL: $STATE_DIRECTORY, if set; "off": none. */
	const char *lease_dir;
	unsigned mtu; /* bytes, 576 to 9000 */
	/* One shard is pinned to each of these CPUs; empty: no shard is. */
	int lcores[NET_MAX_SHARDS];
	unsigned n_lcores;
	unsigned shards; /* 0: one per CPU of lcores, or one */
	/* The most shards that the program supports. The default, 1, suits one
	 * that opens, listens and runs by itself; net_run() and
	 * net_stack_open_args() set NET_MAX_SHARDS. */
	unsigned max_shards;
	enum net_poll_mode poll;
	double stats_s; /* seconds between lines of statistics; 0: none */
	bool huge_off;	/* use no hugepages */
	/* The name under which other DPDK processes, such as dpdk-dumpcap, may
	 * attach: letters, digits, "_", "-" and "."; NULL: no process may.
	 * Needs hugepages of a mounted hugetlbfs. */
	const char *dpdk_prefix;
	bool dad_off; /* do not look for other hosts that have our addresses */
	bool pmtud_off;	     /* no path MTU discovery (RFC 1191, 8201), no DF */
	bool timestamps_off; /* RFC 7323: neither offered nor accepted */
	enum net_ecn ecn;    /* explicit congestion notification */
	bool predict_off;   /* every segment goes through lwIP, for diagnosis */
	unsigned max_conns; /* connections, 1 to 4,000,000 */
	unsigned counted_conns; /* that have the counters of net_conn_stats() */
	/* Open connections with a ring of their last 64 events, of 4.5 KiB each
	 * (docs/operate.md): 0 to 100,000; 0: those coronet-ctl watches. */
	unsigned trace_conns;
	/* Limit of the process's resident memory, hugepages included; 0: a
	 * quarter of the memory of the machine or its control group */
	uint64_t memory_bytes;
	/* The largest receive window in bytes, 256 KiB to 1 GiB; 0: 6 MiB. One
	 * begins at 256 KiB and doubles when more than three eighths were read
	 * within a round trip, unless memory is short. */
	uint64_t rmem_max;
	/* The largest send buffer in bytes, 256 KiB to 64 MiB; 0: 4 MiB. One
	 * begins at 256 KiB and grows to two congestion windows, with BBR
	 * three, unless memory is short. */
	uint64_t wmem_max;
	/* Congestion control of connections for which neither their listener
	 * nor their owner sets one: a name of net_set_cc(); NULL: "cubic". */
	const char *cc;
	/* A coroutine that runs this long without a pause is named in the log,
	 * at most once per second; 0: none is. Default 1000. */
	unsigned watchdog_ms;
	/* Path of the control socket (docs/operate.md); NULL: below
	 * $RUNTIME_DIRECTORY if that is set; "off": no socket. */
	const char *control;
	/* The page for Prometheus, on the kernel or on addrs; port 0: none */
	struct net_addr metrics;
	const char *capture; /* at start: "FILE[,key=value...]"; or NULL */
	/* "[COMPONENT=]LEVEL[,...]", and "stderr", "journal" or a file
	 * (docs/operate.md); NULL: notice, stderr. */
	const char *log_level, *log_to;
	const char *user; /* "NAME[:GROUP]", whom root becomes; or NULL */
	enum net_seccomp seccomp; /* from then on (coronet/net_user.h) */
	/* Open memory in place of links, and no socket, log or capture;
	 * net_stack_run() returns at once. */
	bool check;
	char *const *eal_args; /* the words after "--" */
	unsigned n_eal_args;
	char error[512]; /* out: one line, when a call has failed */
};

/* Sets every option to its default. */
void net_opts_init(struct net_opts *opts);

/*
 * The common options as an argp parser whose input is a struct net_opts: make
 * it a child of the program's own parser, and set its input in ARGP_KEY_INIT. A
 * wrong value ends the program with one line on stderr and status 2.
 */
extern const struct argp net_argp;

/*
 * Parses a command line: keeps the words after "--" for EAL, replaces "--config
 * FILE" by the options in FILE, then runs argp with input. argp NULL: only the
 * common options. opts must be the input of argp's child net_argp, which fills
 * it; its strings then point into argv and into memory that is valid until the
 * next call. Must not be called by two threads at a time. Returns 0, -EINVAL (a
 * file cannot be read or has a wrong line, or there are more than 512 words)
 * with opts->error set, or the negative of an error of argp_parse(3).
 *
 * A line of FILE is "name = value", where name is any option of argp or its
 * children except config. An option without an argument stands alone, or its
 * value is yes or no. A # at the start of a line or after a blank begins a
 * comment, unless it is part of a value in double quotes.
 */
int net_parse_args(const struct argp *argp, int argc, char **argv,
		   struct net_opts *opts, void *input);

/*
 * Returns where the option that is being parsed comes from, as the beginning of
 * a message: "--config 'FILE', line N: ", or "" for the command line. name: the
 * option's name without dashes. Called by the parser function of an argp that
 * net_parse_args() runs. The text is valid until the next call.
 */
const char *net_config_place(const struct argp_state *state, const char *name);

/*
 * Called with an option: its full name without dashes, its value (NULL: it has
 * none) and its place as net_config_place() returns it. All are valid until it
 * returns. A result other than 0 ends the walk.
 */
typedef int (*net_option_fn)(void *arg, const char *name, const char *value,
			     const char *place);

/*
 * Reads again the configuration files of a command line that net_parse_args()
 * has parsed, and calls fn(arg, ...) with every option in order, including
 * those of the command line itself. Values are not checked. argp must not be
 * NULL. For programs that read a changed file while they run. It reads files,
 * and so blocks the thread: call it on a thread of the program's own. Returns
 * 0, a result of fn other than 0, -EINVAL (a file cannot be read or has a wrong
 * line) or -ENOMEM; with the last two, error (len bytes) gets a message.
 */
int net_reread_args(const struct argp *argp, int argc, char **argv,
		    net_option_fn fn, void *arg, char *error, size_t len);

struct net_stack;

/*
 * Starts DPDK, opens the links and brings the addresses up. The calling thread
 * becomes shard 0's, and a coroutine scheduler is opened on it; other shards
 * get threads of their own. *out: shard 0's stack, owned by the caller until
 * net_stack_close(). Returns 0, or with opts->error set
 *   -EINVAL    an option is wrong
 *   -EALREADY  a stack is open: one per process
 *   -EEXIST    the calling thread has a coroutine scheduler, or the path of a
 *              link's socket is another file
 *   -ENOMEM    no memory, or memory_bytes is less than the stack itself needs
 *   -EAGAIN    a thread cannot be made
 *   -EACCES, -EPERM, -ENODEV, -ENOENT, -EADDRINUSE, -EIO ...
 *              a link, the control socket, the address for metrics, the log or
 *              the capture file cannot be opened
 */
int net_stack_open(struct net_opts *opts, struct net_stack **out);

/*
 * Does net_parse_args(), for the common options only, and net_stack_open().
 * Returns 0, or one of their errors, with a message on stderr.
 */
int net_stack_open_args(int argc, char **argv, struct net_stack **out);

/*
 * Resets the connections that are left, destroys the coroutines, closes the
 * links and all shards, and stops DPDK. stack: shard 0's; invalid afterwards.
 * Called by the thread that opened it, outside coroutines.
 */
void net_stack_close(struct net_stack *stack);

/*
 * Runs the stack, on all shards, until net_stack_stop(), SIGINT or SIGTERM.
 * Then drains it: stops accepting, makes blocked calls return -ECANCELED, and
 * waits at most a second for connections to close. A second signal ends the
 * process at once, with status 1. A signal that comes before this call has its
 * previous action, so a program should announce that it is ready in a coroutine
 * (net_spawn()): a signal that is sent after the announcement drains the stack.
 * Called by the thread that opened the stack, outside coroutines. Returns 0.
 */
int net_stack_run(struct net_stack *stack);

/*
 * These calls replace net_stack_run() in a program whose threads take turns at
 * running the stack. net_stack_leave(): the calling thread stops running the
 * stack. net_stack_enter(): the calling thread runs it from now on, and rules
 * for the thread that opened the stack apply to it. The caller ensures that one
 * thread at a time has entered. Called outside coroutines, with one shard.
 * net_stack_enter() returns 0 or -EEXIST (the thread runs another stack, or a
 * coroutine scheduler).
 *
 * net_stack_turn() runs one turn of the loop: it receives frames, runs the
 * coroutines that are ready, sends, and runs timers. It returns the number of
 * frames received and coroutines resumed. net_stack_rest() does what the loop
 * does between turns; work: the result of the last turn. At first it does
 * nothing; after many empty turns it yields the core or sleeps until something
 * arrives, at most until until_ns (CORO_FOREVER: no limit). coro_post() to the
 * stack's scheduler ends the sleep.
 *
 * The first net_stack_leave() marks the program as running.
 */
void net_stack_leave(struct net_stack *stack);
int net_stack_enter(struct net_stack *stack);
unsigned net_stack_turn(struct net_stack *stack);
void net_stack_rest(struct net_stack *stack, unsigned work, int64_t until_ns);

/* ---- shards ---- */

/*
 * A program has one shard or several (opts.lcores, opts.shards; --lcores): each
 * is a thread with a struct net_stack of its own, and shards share no state of
 * a connection. A connection belongs to the shard that its addresses and ports
 * hash to, and so do its coroutines. A shard's objects are used only from its
 * own thread; a call from another ends the process with a message.
 * docs/cores.md explains how to write programs for several shards.
 */

/* Returns the number of the stack's shard, 0 to net_stack_shards() - 1. */
unsigned net_stack_shard(const struct net_stack *stack);

/* Returns how many shards the program has. */
unsigned net_stack_shards(const struct net_stack *stack);

/* Returns the calling thread's stack; NULL if the thread is not a shard's. */
struct net_stack *net_stack_here(void);

/* Starts the program on one shard; less than 0 is an error. See net_run(). */
typedef int (*net_start)(struct net_stack *stack, void *arg);

/*
 * Opens the shards, runs start(stack, arg) on each in a coroutine, runs the
 * program like net_stack_run(), and closes it. arg is shared by all shards and
 * borrowed until the call returns. A start that returns less than 0 stops the
 * program. Called outside coroutines. Returns 0, the result of the first start
 * that failed, an error of net_stack_open() or net_post(), or -EINVAL (start is
 * NULL); all with opts->error set.
 */
int net_run(struct net_opts *opts, net_start start, void *arg);

/*
 * Runs fn(arg) on a shard's thread in its next round, outside any coroutine; fn
 * must not block. Does not wait for it. Functions that one thread posts to a
 * shard run in the order in which it posted them. arg: borrowed until fn has
 * run; not on a shared stack. From any thread, while the program is open.
 * Returns 0, -EAGAIN (1,024 functions are queued there), -ESHUTDOWN (the shard
 * closes) or -EINVAL (no such shard, or fn is NULL).
 */
int net_post(unsigned shard, void (*fn)(void *arg), void *arg);

/*
 * Blocks until fn(arg) has run on a shard's thread, outside any coroutine
 * there; the shard may be the caller's own. *result (result may be NULL) gets
 * what fn returned. arg: borrowed until the call returns; not on a shared
 * stack. Called in a coroutine of any scheduler, or before net_stack_run()
 * outside a coroutine by the thread that opened the program, which then blocks.
 * Returns 0, -EINVAL (no such shard, or fn is NULL) or an error of coro_call();
 * outside a coroutine an error of net_post(), or -EPERM once the program runs.
 */
int net_call(unsigned shard, coro_fn fn, void *arg, void **result);

/*
 * Makes net_stack_run() return, on all shards. From any shard's thread or a
 * signal handler. Does not block.
 */
void net_stack_stop(struct net_stack *stack);

/* Returns whether the program is stopping, by net_stack_stop() or a signal. */
bool net_stack_stopping(const struct net_stack *stack);

/*
 * Starts a detached coroutine on the stack that runs fn(arg); the program ends
 * it when the stack closes. name: copied, 31 bytes kept; NULL: "coro". arg:
 * borrowed by fn; not on a shared stack. Returns 0, -ENOMEM, -EINVAL (fn is
 * NULL) or -EPERM (not the stack's thread).
 */
int net_spawn(struct net_stack *stack, const char *name, coro_fn fn, void *arg);

/*
 * Blocks until every link is up. Returns 0, or an error of blocking calls:
 * -ETIMEDOUT also after timeout_ms.
 */
int net_link_wait(struct net_stack *stack, unsigned timeout_ms);

/*
 * Return the time on the monotonic clock that deadlines use, in ns:
 * net_now_ns() that of the beginning of the stack's current round,
 * net_clock_ns() the present time (from any thread).
 */
int64_t net_now_ns(const struct net_stack *stack);
int64_t net_clock_ns(void);

/* The exit status for an error: 0 for 0; 2 for -EINVAL, or for any error with
 * net_opts.check; else 1. */
int net_exit_status(int err);

/*
 * A histogram of times: buckets[0] counts times below 1,024 ns, buckets[i] the
 * others below 2^(10 + i) ns, and the last all the rest.
 */
#define NET_HIST_BUCKETS 28
struct net_hist {
	uint64_t buckets[NET_HIST_BUCKETS];
	uint64_t sum_ns;
};

/*
 * Counters of a shard, or of all, since the stack was opened; the values from
 * conns to memory_max_bytes are as of now.
 */
struct net_stats {
	uint64_t rx_frames, rx_bytes, rx_bad_frame, rx_bad_csum, rx_missed;
	/*
	 * Frames for other shards that came to this shard's queues, how many of
	 * them were dropped because a shard was behind, and frames for this
	 * shard that came to other queues.
	 */
	uint64_t handed_over, rx_hand_over_full, taken_over;
	uint64_t tx_frames, tx_bytes;
	uint64_t tx_dropped;  /* frames that the port did not accept */
	uint64_t tx_no_frame; /* frames not sent: the pool was empty */
	uint64_t accepted, dialed, closed, reset, timed_out;
	uint64_t no_memory;	     /* allocations refused, any kind */
	uint64_t memory_refused;     /* growth and SYNs over the budget */
	uint64_t memory_resets;	     /* connections reset: budget used up */
	uint64_t rx_no_memory;	     /* received data dropped: no memory */
	uint64_t views_reclaimed;    /* views that handlers did not release */
	uint64_t view_misuses;	     /* releases of views that were not held */
	uint64_t backlog_drops;	     /* SYNs dropped: the backlog was full */
	uint64_t clients_refused;    /* SYNs dropped: net_listener_limit() */
	uint64_t time_wait_recycled; /* TIME_WAIT ended early: too many */
	uint64_t ooseq_drops;	     /* data out of order, beyond the budget */
	/* SYNs answered with a cookie (RFC 4987), and ACKs of cookies */
	uint64_t cookies_sent, cookies_accepted, cookies_refused;
	uint64_t syns_shed; /* SYNs dropped: beyond the rate of cookies */
	/* segments dropped as unacceptable (RFC 9293, 5961); ACKs sent then */
	uint64_t rx_unacceptable, challenge_acks;
	/* connections reset after net_close(): too many had data to deliver */
	uint64_t orphans_recycled;
	/* frames whose protocol, options or content the stack ignores */
	uint64_t rx_refused;
	uint64_t rx_other_vlan; /* frames of other VLANs than the link's */
	/* packets dropped: too many neighbours were being resolved */
	uint64_t neighbours_refused;
	/* packets of other hosts that had an address of the stack */
	uint64_t addr_conflicts;
	/*
	 * packets from the stack to an address of its own, and how many of them
	 * were dropped because too many were queued
	 */
	uint64_t looped, loop_drops;
	/*
	 * MSS lowered after a router's "too big", or after full segments were
	 * lost; "too big" that quotes no segment in flight, ignored (RFC 5927)
	 */
	uint64_t path_mtu_lowered, path_mtu_guessed, path_mtu_refused;
	/*
	 * ECN (RFC 3168): connections that have negotiated it, segments
	 * received with a CE mark, and congestion windows cut after an ECE
	 */
	uint64_t ecn_conns, rx_ce, ecn_cuts;
	/* congestion windows restored after a spurious retransmission */
	uint64_t cuts_undone;
	/*
	 * Frames passed to the kernel (--exception) and sent on its behalf;
	 * frames to it dropped by the rate limit, and frames that it or the
	 * port did not accept; rounds in which the kernel's frames had to wait.
	 */
	uint64_t to_kernel, from_kernel;
	uint64_t kernel_limited, kernel_dropped, kernel_held;
	/*
	 * UDP: datagrams queued for sockets, and sent; dropped because a
	 * socket's queue was full; and received for a port without a socket
	 */
	uint64_t udp_received, udp_sent, udp_queue_full, udp_no_socket;
	/* handshakes of TLS, those resumed; failed; too many, or no memory */
	uint64_t tls_handshakes, tls_resumed, tls_failed, tls_refused;
	uint64_t lwip_assertions; /* failed; their connections are reset */
	/*
	 * Segments retransmitted, by how the loss was detected: a timeout (RFC
	 * 6298), SACK and time (RACK, RFC 8985), duplicate ACKs of a peer
	 * without SACK (RFC 6582); and tail loss probes (TLP).
	 */
	uint64_t resent_rto, resent_rack, resent_fast, resent_tlp;
	uint64_t rtos;	       /* retransmission timeouts */
	uint64_t out_of_order; /* segments received out of order */
	uint64_t rounds;       /* rounds of the loop */
	struct net_hist rtt;   /* round trip samples */
	struct net_hist round; /* durations of rounds that found work */
	uint64_t pool_empty;   /* checks that found a link short of frames */
	uint64_t log_dropped;  /* lines of the log that were dropped */
	int64_t busy_ns;       /* time spent in rounds that found work */
	unsigned conns;	       /* TCP control blocks */
	unsigned half_open;    /* SYN received, without a control block */
	unsigned time_wait;    /* in TIME_WAIT, without a control block */
	unsigned closing;      /* of conns: closed here, not yet delivered */
	unsigned frames_free, frames;
	/* of connections and coroutines, and their limit within --memory */
	uint64_t memory_bytes, memory_max_bytes;
};

/* Copies the counters of one shard to *out. Does not block. */
void net_stack_stats(struct net_stack *stack, struct net_stats *out);

/*
 * Adds up the counters of all shards in *out. Blocks until each has answered,
 * so it is not for the path of a packet. Called on a shard's thread. Returns 0,
 * -ENOMEM, or an error of net_call().
 */
int net_program_stats(struct net_stats *out);

/* ---- packets ---- */

#define NET_CAPTURE_MIB 100 /* the default size of a capture's file */

/*
 * A capture of both directions of every link into a pcapng file. A zero field
 * has its default, except for path.
 */
struct net_capture {
	const char *path;     /* created with mode 0600, or overwritten */
	const char *filter;   /* in tcpdump's language; NULL or "": all */
	uint64_t max_bytes;   /* of the file; 0: NET_CAPTURE_MIB */
	uint64_t max_packets; /* 0: as many as max_bytes allows */
	unsigned snap_bytes;  /* of each frame, 1 to 9216; 0: all of them */
};

/*
 * Starts a capture; a program has at most one at a time. The polling threads
 * copy the frames that the filter selects, and another thread writes them;
 * frames that it cannot keep up with are counted and left out. The capture ends
 * at a limit, by net_capture_stop(), with the program, or when the file cannot
 * be written, and its end is logged. From any thread or coroutine while a stack
 * is open; it opens a file, so it is not for the path of a packet. Returns 0,
 * or with a line in err (err_len bytes with the NUL)
 *   -EBUSY   a capture is running
 *   -EINVAL  the filter or a limit is wrong, or path is not a plain file
 *   -ENOMEM
 *   -ENODEV  no port is open
 *   -EIO     the file's header cannot be written
 *   -EAGAIN  no thread can be made
 * or an error of open(2) or ftruncate(2).
 */
int net_capture_start(const struct net_capture *what, char *err,
		      size_t err_len);

/*
 * Asks the capture to end, and returns at once: the frames seen so far will be
 * in the file. Ignored if none runs. From any thread.
 */
void net_capture_stop(void);

enum net_capture_state {
	NET_CAPTURE_NONE,    /* there has been none */
	NET_CAPTURE_RUNS,    /* or its file is being finished */
	NET_CAPTURE_STOPPED, /* by net_capture_stop() or with the program */
	NET_CAPTURE_FULL,    /* a limit was reached */
	NET_CAPTURE_FAILED,  /* its file could not be written */
};

struct net_capture_status {
	enum net_capture_state state;
	uint64_t packets, bytes; /* in the file, its headers included */
	uint64_t dropped;	 /* frames selected, but not in the file */
	int err;		 /* NET_CAPTURE_FAILED: a negative errno */
	char path[256];
};

/*
 * Fills *out with the state of the capture that runs, or else of the last one.
 * From any thread.
 */
void net_capture_status(struct net_capture_status *out);

/* ---- logging ---- */

/* Levels of lines: those of rte_log. */
enum net_log_level {
	NET_LOG_EMERGENCY = 1,
	NET_LOG_ALERT,
	NET_LOG_CRITICAL,
	NET_LOG_ERROR,
	NET_LOG_WARNING,
	NET_LOG_NOTICE, /* by default components log up to this */
	NET_LOG_INFO,
	NET_LOG_DEBUG
};

/*
 * Logs a line at NET_LOG_NOTICE. While a stack is open it never blocks, as
 * printf(3) to stderr does when nobody reads the pipe behind it, which would
 * stop the polling thread and all its connections: another thread writes, and
 * up to 256 lines wait for it. Further lines are dropped and counted
 * (net_stats.log_dropped), and the next line that can be written reports how
 * many. Lines to a closed stderr are dropped as well: while a stack is open
 * SIGPIPE does not end the process, unless the program has set its own action.
 * Without a stack the calling thread writes, and may block. --log-to sets where
 * lines go, --log-level and coronet-ctl which lines are logged.
 *
 * The newline is added; control characters become '?'; a line is cut to 511
 * bytes. From any thread. Not for the path of a packet: it formats, and may
 * wake the thread that writes.
 */
__attribute__((format(printf, 1, 2))) void net_log(const char *format, ...);

/* Like net_log(), at another level; a wrong level logs nothing. */
__attribute__((format(printf, 2, 3))) void net_log_at(enum net_log_level level,
						      const char *format, ...);

/*
 * Like net_log() for len bytes as they are, at any level that is set: no
 * newline is added, nothing is replaced. Takes at most 512 bytes.
 */
void net_log_write(const char *text, size_t len);

/*
 * Names the component of the program's own lines, of all calls here except
 * net_log_write(): "coronet.NAME" in static storage, instead of
 * "coronet.program". --log-level and coronet-ctl set its level by that name.
 * Called before a stack is open. Returns 0, -EINVAL (component is NULL, has
 * another form, a character of "*?[]=, " or more than 63 bytes) or -ENOMEM.
 */
int net_log_name(const char *component);

/*
 * Makes the thread that writes the log reopen the file of --log-to soon, for
 * example after it was renamed. If it cannot be opened, the old file stays in
 * use and its next line says why. While a stack is open SIGUSR1 does the same,
 * unless the program has set its own action, and so does coronet-ctl. From any
 * thread or signal handler; does not block.
 */
void net_log_reopen(void);

/*
 * Registers reopen(arg) to be called whenever the log is reopened, for the
 * program's own log files. It is called on the thread that writes the log, must
 * not block for long, and must not call this or net_log_leave(). arg: borrowed
 * until net_log_leave(). From any thread. Returns 0, -EINVAL (reopen is NULL)
 * or -ENOSPC (eight functions are registered).
 */
int net_log_join(void (*reopen)(void *arg), void *arg);

/*
 * Undoes net_log_join() of the same arguments, if there was one; waits for a
 * call of reopen that runs. From any thread.
 */
void net_log_leave(void (*reopen)(void *arg), void *arg);

/* A rate limit of lines: static, zero at first except for per_second. */
struct net_log_limit {
	int64_t next_ns;
	uint32_t suppressed;
	uint32_t per_second; /* lines, also in one burst; 0: one */
};

/*
 * Like net_log(), at NET_LOG_WARNING and only as often as *limit allows, for
 * lines that may be repeated thousands of times. Each kind of line has its own
 * limit. A line reports how many before it were suppressed. From any thread,
 * while a stack is open: without one the clock stands still.
 */
__attribute__((format(printf, 2, 3))) void
net_log_limited(struct net_log_limit *limit, const char *format, ...);

/* net_log_limited() with a limit of its own for each place in the source. */
#define net_log_seldom(...)                                                    \
	do {                                                                   \
		static struct net_log_limit net_log_limit_;                    \
		net_log_limited(&net_log_limit_, __VA_ARGS__);                 \
	} while (0)

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
