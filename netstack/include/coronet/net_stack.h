/*
 * coronet: the program around the connections: addresses, options, opening and
 * running stacks, shards, statistics, the log. coronet/net.h includes it and
 * says what holds for every call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <coronet/coro.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct argp;
struct argp_state;

/* ---- addresses ---- */

#define NET_ADDR_TEXT_MAX 64 /* bytes, any address as text, NUL included */

/* Plain data, copied freely. A zero family means "any address". */
struct net_addr {
	uint8_t family;	    /* 0, 4 or 6 */
	uint8_t prefix_len; /* bits of network, where it matters */
	uint16_t port;	    /* host byte order */
	uint8_t ip[16];	    /* network byte order; IPv4 takes the first 4 */
};

/* Any local address at a port, as in net_listen(stack, &net_addr_any(80)). */
#ifndef __cplusplus
#define net_addr_any(port_) ((const struct net_addr){.port = (port_)})
#else
/* C++ has no compound literals, and takes no temporary's address but so: the
 * pointer is good until the end of the statement. */
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
 * Reads "10.9.0.1:80" or "[fd00::1]:80"; without default_port >= 0 the port
 * must be there. Returns 0 or -EINVAL.
 */
int net_addr_parse(const char *text, int default_port, struct net_addr *out);

/* Reads "10.9.0.1/16" or "fd00::1/64". Returns 0 or -EINVAL. */
int net_addr_parse_prefix(const char *text, struct net_addr *out);

/* Writes "10.9.0.1:80" or "[fd00::1]:80"; returns buf. */
char *net_addr_format(const struct net_addr *addr, char *buf, size_t len);

/* ---- opening a stack ---- */

#define NET_MAX_LINKS  8
#define NET_MAX_SHARDS 64
#define NET_MAX_ADDRS  64

enum net_poll_mode { NET_POLL_AUTO, NET_POLL_BUSY, NET_POLL_ADAPTIVE };

/* RFC 3168, as the kernel's tcp_ecn has it (2, 1, 0). */
enum net_ecn {
	NET_ECN_ACCEPT, /* with peers that ask for it */
	NET_ECN_ON,	/* and ask for it where we dial */
	NET_ECN_OFF,
};

/*
 * Everything the common options say. Start from net_opts_init(). Strings are
 * borrowed until net_stack_open() returns.
 */
struct net_opts {
	const char *links[NET_MAX_LINKS]; /* "KIND:NAME[,key=value...]" */
	unsigned n_links;
	/* Of each link: "tap:NAME[,key=value...]", the kernel's interface that
	   gets what the stack has no use for; or NULL. */
	const char *exceptions[NET_MAX_LINKS];
	struct net_addr addrs[NET_MAX_ADDRS]; /* with prefix_len */
	uint8_t addr_links[NET_MAX_ADDRS];    /* index of the link it is on */
	unsigned n_addrs;
	struct net_addr gateway4, gateway6; /* family 0: none */
	unsigned mtu;			    /* bytes, 576 to 9000 */
	/* A shard is pinned to each of these CPUs; none: no shard is pinned. */
	int lcores[NET_MAX_SHARDS];
	unsigned n_lcores;
	unsigned shards; /* 0: one a CPU of lcores, or one */
	/*
	 * What the program is written for; more shards are refused. 1 by
	 * default, which suits a program that opens, listens and runs by
	 * itself. net_run() and net_stack_open_args() set it to NET_MAX_SHARDS.
	 */
	unsigned max_shards;
	enum net_poll_mode poll;
	double stats_s; /* seconds between lines of statistics; 0: none */
	bool huge_off;
	/* Other processes of DPDK's, such as dpdk-dumpcap, may attach under
	 * this name of letters, digits, "_", "-" and "."; NULL: none may. Takes
	 * hugepages of a mounted hugetlbfs. Borrowed while the stack opens. */
	const char *dpdk_prefix;
	bool pmtud_off;	     /* no path MTU discovery (RFC 1191, 8201), no DF */
	bool timestamps_off; /* RFC 7323's are neither offered nor accepted */
	enum net_ecn ecn;    /* explicit congestion notification */
	bool predict_off;   /* every segment goes through lwIP, for diagnosis */
	unsigned max_conns; /* connections, 1 to 4,000,000 */
	unsigned counted_conns; /* of those that count for net_conn_stats() */
	/* Of the connections that are open at a time, the first so many have a
	 * ring of their last 64 events, of 4.5 KiB of --memory each
	 * (docs/operate.md); 0 to 100,000, 0: only those that are watched. */
	unsigned trace_conns;
	/* resident memory of the process, hugepages included, 0: a quarter of
	   the machine's, or of what its control group may use */
	uint64_t memory_bytes;
	/* A connection's receive window in bytes, 256 KiB to 1 GiB, 0: 6 MiB.
	 * It begins with 256 KiB and is doubled when more than three eighths of
	 * it were read within a round trip, unless memory is short. */
	uint64_t rmem_max;
	/* A connection's send buffer in bytes, 256 KiB to 64 MiB, 0: 4 MiB. It
	 * begins with 256 KiB and has room for two congestion windows, or BBR's
	 * three, unless memory is short. */
	uint64_t wmem_max;
	/* Congestion control of connections whose listener, or owner, chooses
	 * none: net_set_cc() has the names; NULL: "cubic". */
	const char *cc;
	/* A coroutine that keeps all others waiting for so long is named in the
	 * log, at most once a second; 0: none is. Default 1000. */
	unsigned watchdog_ms;
	/* Where the control socket is made (docs/operate.md); NULL: below
	 * $RUNTIME_DIRECTORY if that is set; "off": nowhere. */
	const char *control;
	struct net_addr
		metrics; /* of the kernel's, for Prometheus; port 0: no */
	/* A capture from the beginning: "FILE[,key=value...]"; or NULL. */
	const char *capture;
	/* "[COMPONENT=]LEVEL[,...]": what is logged, and where to: "stderr",
	 * "journal" or a file (docs/operate.md); NULL: notice, stderr. */
	const char *log_level, *log_to;
	char *const *eal_args; /* what stood after "--" */
	unsigned n_eal_args;
	char error[512]; /* one clear line when a call failed */
};

void net_opts_init(struct net_opts *opts);

/*
 * The common options as an argp parser whose input is a struct net_opts: put
 * it among your own parser's children and hand it its input in
 * ARGP_KEY_INIT. Wrong values end the program with one clear line, status 2.
 */
extern const struct argp net_argp;

/*
 * Parses a command line: words after "--" are kept for EAL, "--config FILE"
 * is replaced by the options in FILE, then argp (NULL: the common options
 * alone) is run with input. opts is filled by net_argp; it must be the input of
 * that child. Returns 0, or -errno with opts->error set.
 *
 * A line of FILE is "name = value", where name is any option of argp or its
 * children but config. An option that takes no value stands alone or has yes or
 * no. A # at the start of a line or after a blank begins a comment, unless it
 * stands in a value between double quotes.
 */
int net_parse_args(const struct argp *argp, int argc, char **argv,
		   struct net_opts *opts, void *input);

/*
 * Where the option that is being parsed comes from, to begin a message with:
 * "--config 'FILE', line N: ", or "" for the command line. name is the option's
 * without dashes. For an argp parser under net_parse_args() whose key is that
 * option's. The text is good until the next call.
 */
const char *net_config_place(const struct argp_state *state, const char *name);

/*
 * Told of an option: its whole name without dashes, its value (NULL: it has
 * none), where it stands, as net_config_place() says it. All is good until it
 * returns. What it returns, if not 0, ends the walk.
 */
typedef int (*net_option_fn)(void *arg, const char *name, const char *value,
			     const char *place);

/*
 * Reads the files of a command line that net_parse_args() took before once
 * more and tells fn of every option in its order, those of the command line
 * itself too; no value is checked. For programs that take a changed file while
 * they run. It reads files, so it blocks the thread: call it on one of the
 * program's own. Returns 0, what fn returned, -EINVAL or -ENOMEM: a file
 * cannot be read, or has a line that is no option; then error (len bytes) says
 * what.
 */
int net_reread_args(const struct argp *argp, int argc, char **argv,
		    net_option_fn fn, void *arg, char *error, size_t len);

struct net_stack;

/*
 * Starts DPDK, opens the links and brings the addresses up. The calling
 * thread becomes the stack's; a coroutine scheduler is opened on it.
 * Returns 0 or -errno with opts->error set: -EINVAL (an option is wrong),
 * -EACCES or -EPERM, -ENODEV, -ENOMEM (memory_bytes is less than the stack
 * itself needs, for one), -EALREADY (one is open)...
 */
int net_stack_open(struct net_opts *opts, struct net_stack **out);

/* net_parse_args() and net_stack_open() in one; prints its error itself. */
int net_stack_open_args(int argc, char **argv, struct net_stack **out);

/*
 * Aborts what is left, closes links, stops DPDK. Not from a coroutine.
 */
void net_stack_close(struct net_stack *stack);

/*
 * Runs the stack until net_stack_stop() or SIGINT/SIGTERM, then drains: stops
 * accepting, makes blocked calls return -ECANCELED, waits at most a second
 * for connections to close. A second signal ends the process at once.
 * Signals that come before it runs do what they did: say that the program is
 * ready in a coroutine (net_spawn()), and a signal in answer to that drains it.
 * Returns 0.
 */
int net_stack_run(struct net_stack *stack);

/* ---- shards ---- */

/*
 * A program has one shard or several (opts.lcores, opts.shards; --lcores): each
 * is a thread with a struct net_stack of its own, and nothing of a connection's
 * life is shared between them. A connection belongs to the shard that its
 * addresses and ports hash to, and so do its coroutines. What belongs to a
 * shard is used from its own thread alone; calls from another abort the program
 * with a sentence. docs/cores.md tells how to write for several.
 */

/* 0 to net_stack_shards() - 1. */
unsigned net_stack_shard(const struct net_stack *stack);
unsigned net_stack_shards(const struct net_stack *stack);

/* The stack of the calling thread, or NULL: it is not a shard's. */
struct net_stack *net_stack_here(void);

typedef int (*net_start)(struct net_stack *stack, void *arg);

/*
 * Opens the shards, runs start(stack, arg) on each in a coroutine, runs the
 * program as net_stack_run() does, and closes it. arg is shared by all. A
 * start that returns less than 0 stops the program. Not from a coroutine.
 * Returns 0, or what the first start that failed returned, or what
 * net_stack_open() returns, with opts->error set.
 */
int net_run(struct net_opts *opts, net_start start, void *arg);

/*
 * Has fn(arg) run on a shard's thread in its next round, outside any coroutine,
 * where it must not block. Never blocks; what one thread posts to a shard runs
 * in that order. From any thread, while the program is open. Returns 0,
 * -EAGAIN (1,024 wait there already), -ESHUTDOWN (it closes) or -EINVAL (no
 * such shard, or no fn).
 */
int net_post(unsigned shard, void (*fn)(void *arg), void *arg);

/*
 * Blocks the calling coroutine until fn(arg) has run on a shard's thread, its
 * own included, outside any coroutine there. *result, which may be NULL, gets
 * what fn returned. arg may not lie on a shared stack. Errors as coro_call()
 * has them, and -EINVAL (no such shard, or no fn). Before net_stack_run() the
 * thread that opened the program may call it, too, outside a coroutine, and
 * blocks; then -EAGAIN means what it means for net_post().
 */
int net_call(unsigned shard, coro_fn fn, void *arg, void **result);

/* Asks net_stack_run() to return. From any coroutine or signal handler. */
void net_stack_stop(struct net_stack *stack);

/* Whether the stack is stopping. */
bool net_stack_stopping(const struct net_stack *stack);

/* Starts a coroutine on the stack: coro_spawn() on its scheduler. */
int net_spawn(struct net_stack *stack, const char *name, coro_fn fn, void *arg);

/* Blocks until every link is up. -ETIMEDOUT after timeout_ms. */
int net_link_wait(struct net_stack *stack, unsigned timeout_ms);

/* The stack's monotonic clock in ns: that of the coroutines' deadlines. */
int64_t net_now_ns(const struct net_stack *stack); /* as of this round */
int64_t net_clock_ns(void);			   /* read now */

/* The exit status for an error: 0, 2 for -EINVAL, 1 for the rest. */
int net_exit_status(int err);

/*
 * A histogram of times: buckets[0] counts those below 1,024 ns, buckets[i]
 * those below 2^(10 + i) ns that are in none before, the last all others.
 */
#define NET_HIST_BUCKETS 28
struct net_hist {
	uint64_t buckets[NET_HIST_BUCKETS];
	uint64_t sum_ns;
};

struct net_stats {
	uint64_t rx_frames, rx_bytes, rx_bad_frame, rx_bad_csum, rx_missed;
	/*
	 * Frames of other shards that came by this one's queue, those of them
	 * dropped since their shard was behind, and its own by other queues.
	 */
	uint64_t handed_over, hand_over_drops, taken_over;
	uint64_t tx_frames, tx_bytes, tx_dropped;
	uint64_t accepted, dialed, closed, reset, timed_out;
	uint64_t no_memory;	     /* allocations refused, any kind */
	uint64_t memory_refused;     /* growth, SYNs: beyond the budget */
	uint64_t memory_resets;	     /* the greediest, when it was used up */
	uint64_t rx_no_memory;	     /* segments dropped: no frame to spare */
	uint64_t views_reclaimed;    /* never released by their handlers */
	uint64_t view_misuses;	     /* views given back that were not out */
	uint64_t backlog_drops;	     /* SYNs dropped: backlog full */
	uint64_t clients_refused;    /* SYNs dropped: net_listener_limit() */
	uint64_t time_wait_recycled; /* ended early: too many */
	uint64_t ooseq_drops;	     /* out of order, beyond the budget */
	/* SYNs answered without keeping anything, and the ACKs of such */
	uint64_t cookies_sent, cookies_accepted, cookies_refused;
	uint64_t syns_shed; /* SYNs dropped: more than there are cookies for */
	/* segments dropped as RFC 9293 and RFC 5961 want it, and answers */
	uint64_t rx_unacceptable, challenge_acks;
	/* Closed but not done, and reset since there were too many of them. */
	uint64_t orphans_recycled;
	/* frames of protocols or options not taken, or with nothing to tell */
	uint64_t rx_refused;
	/* frames of other VLANs than the link's (any, if it has none) */
	uint64_t rx_other_vlan;
	/* packets lost as too many neighbours were being asked for */
	uint64_t neighbours_refused;
	/*
	 * MSS lowered since a router said so, or since full segments vanished;
	 * "too big" of what was not under way, not believed (RFC 5927)
	 */
	uint64_t path_mtu_lowered, path_mtu_guessed, path_mtu_refused;
	/*
	 * ECN (RFC 3168): connections that have agreed on it, segments that
	 * came with a router's mark, and windows cut since the peer told of one
	 */
	uint64_t ecn_conns, rx_ce, ecn_cuts;
	/* windows that were cut, and given back: nothing had been lost */
	uint64_t cuts_undone;
	/*
	 * Frames given to the kernel (--exception) and sent for it; dropped on
	 * the way there as they were beyond the rate, or since it or the port
	 * did not take them; rounds in which the kernel's had to wait.
	 */
	uint64_t to_kernel, from_kernel;
	uint64_t kernel_limited, kernel_dropped, kernel_held;
	/*
	 * Segments sent again, by what found them lost: a timeout (RFC 6298),
	 * SACK and time (RACK, RFC 8985), duplicate ACKs of a peer without SACK
	 * (RFC 6582); and segments sent to probe for a lost tail (TLP).
	 */
	uint64_t resent_rto, resent_rack, resent_fast, resent_tlp;
	uint64_t rtos;	       /* retransmission timeouts */
	uint64_t out_of_order; /* segments that came before their turn */
	uint64_t rounds;       /* turns of the loop */
	struct net_hist rtt;   /* round trips as they were measured */
	struct net_hist round; /* rounds that found work */
	uint64_t log_dropped;  /* lines that stderr did not take */
	int64_t busy_ns;       /* time spent in rounds that found work */
	unsigned conns;	       /* TCP control blocks now */
	unsigned half_open;    /* answered a SYN and no more: nor these */
	unsigned time_wait;    /* closed, in TIME_WAIT: no control block */
	unsigned closing;      /* of conns: closed here, not yet delivered */
	unsigned frames_free, frames;
	/* of connections and coroutines, and what --memory leaves for them */
	uint64_t memory_bytes, memory_max_bytes;
	uint64_t pool_empty; /* times that a link had hardly a frame left */
};

/* What one shard has counted. */
void net_stack_stats(struct net_stack *stack, struct net_stats *out);

/*
 * What all shards have counted, summed up. Blocks the calling coroutine until
 * each has told, so not for the path of a packet. Returns 0 with *out filled
 * in, -ENOMEM, or an error as net_call() has it.
 */
int net_program_stats(struct net_stats *out);

/* ---- packets ---- */

/*
 * A capture of both directions of every link, as they cross it, into a pcapng
 * file. Zeros are defaults, but for path.
 */
struct net_capture {
	const char *path;     /* made with mode 0600, or overwritten */
	const char *filter;   /* as tcpdump's; NULL or "": all frames */
	uint64_t max_bytes;   /* of the file; 0: 100 MiB */
	uint64_t max_packets; /* 0: as many as that allows */
	unsigned snap_bytes;  /* of each frame, 1 to 9216; 0: all of them */
};

/*
 * Starts one, of which there is one a program at a time. The polling threads
 * copy what the filter takes, a thread of its own writes; what it cannot keep
 * up with is counted and left out. It ends at a limit, by net_capture_stop(),
 * with the program, or when the file cannot be written, and the log says so.
 * From any thread or coroutine while a stack is open; it opens a file, so not
 * for the path of a packet. Strings are borrowed during the call. Returns 0, or
 * -errno with one clear line in err: -EBUSY (one runs), -EINVAL (the filter, a
 * limit, a path that is no plain file), -ENOMEM, or what open(2) said.
 */
int net_capture_start(const struct net_capture *what, char *err,
		      size_t err_len);

/*
 * Asks it to end, and returns at once: what has been seen by now will be in the
 * file. Nothing happens if none runs. From any thread.
 */
void net_capture_stop(void);

enum net_capture_state {
	NET_CAPTURE_NONE,    /* there has been none */
	NET_CAPTURE_RUNS,    /* or its file is being finished */
	NET_CAPTURE_STOPPED, /* as asked */
	NET_CAPTURE_FULL,    /* a limit was reached */
	NET_CAPTURE_FAILED,  /* its file could not be written */
};

struct net_capture_status {
	enum net_capture_state state;
	uint64_t packets, bytes; /* in the file, whose headers count, too */
	uint64_t dropped;	 /* the filter took them; not in the file */
	int err;		 /* NET_CAPTURE_FAILED: a negative errno */
	char path[256];
};

/* How the present one stands, or the last one ended. From any thread. */
void net_capture_status(struct net_capture_status *out);

/* ---- logging ---- */

/* Levels of lines, as rte_log has them. */
enum net_log_level {
	NET_LOG_EMERGENCY = 1,
	NET_LOG_ALERT,
	NET_LOG_CRITICAL,
	NET_LOG_ERROR,
	NET_LOG_WARNING,
	NET_LOG_NOTICE, /* components log up to this, unless told otherwise */
	NET_LOG_INFO,
	NET_LOG_DEBUG
};

/*
 * Logs a line at NET_LOG_NOTICE without ever blocking the caller, as printf(3)
 * on stderr would when nobody reads the pipe behind it: the polling thread and
 * every connection with it would stand still. While a stack is open a thread of
 * its own writes; up to 256 lines wait for it. More are dropped and counted
 * (net_stats.log_dropped), and the next line that can be written says how many.
 * A closed stderr loses lines, too, and no more: while a stack is open SIGPIPE
 * does not end the process, unless the program has set its own action. --log-to
 * says where lines go, --log-level and coronet-ctl which do.
 *
 * The newline is added; control characters become '?'; a line is cut at 511
 * bytes. Any thread. Not for the path of a packet: it formats, and may wake
 * the thread that writes.
 */
__attribute__((format(printf, 1, 2))) void net_log(const char *format, ...);

/* The same at another level; a wrong one logs nothing. */
__attribute__((format(printf, 2, 3))) void net_log_at(enum net_log_level level,
						      const char *format, ...);

/* The same for bytes as they are: no newline is added. At most 512 are taken.
 */
void net_log_write(const char *text, size_t len);

/*
 * Names the component that the program's own lines are of, those of all calls
 * here but net_log_write(): "coronet.NAME", static ("coronet.program" before).
 * --log-level and coronet-ctl set its level by that name. To be called before a
 * stack is open. 0, -EINVAL (no such name, or more than 63 bytes), -ENOMEM.
 */
int net_log_name(const char *component);

/*
 * Has the file of --log-to opened anew, soon, as after it was renamed; a file
 * that cannot be opened changes nothing, and the old one's next line says why.
 * While a stack is open SIGUSR1 does this unless the program has set its own
 * action, and so does coronet-ctl. From any thread or signal handler.
 */
void net_log_reopen(void);

/*
 * The program's own log files join in: reopen(arg) is called then, on the log's
 * thread, and must not block for long nor call these two. Until
 * net_log_leave(), after which it is not running either. Any thread. Returns 0,
 * -EINVAL (no function), -ENOSPC (there are eight).
 */
int net_log_join(void (*reopen)(void *arg), void *arg);
void net_log_leave(void (*reopen)(void *arg), void *arg);

/* What may recur by the thousand; static, zero at first but for per_second. */
struct net_log_limit {
	int64_t next_ns;
	uint32_t suppressed;
	uint32_t per_second; /* lines, which may come at once; 0: one */
};

/*
 * Logs at NET_LOG_WARNING, and no more lines than the limit lets pass; each
 * kind of line has a limit of its own. A line tells how many before it were
 * suppressed. Any thread; the stack has to be open, as time stands still
 * without one.
 */
__attribute__((format(printf, 2, 3))) void
net_log_limited(struct net_log_limit *limit, const char *format, ...);

/* net_log_limited() with a limit for this place in the source. */
#define net_log_seldom(...)                                                    \
	do {                                                                   \
		static struct net_log_limit net_log_limit_;                    \
		net_log_limited(&net_log_limit_, __VA_ARGS__);                 \
	} while (0)

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
