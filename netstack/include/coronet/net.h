/*
 * coronet: TCP from coroutines, over DPDK and lwIP.
 *
 * One stack a process; every call here is made from the thread that opened
 * it, unless it says otherwise: from another it ends the process with a
 * sentence that names the call. "Blocks" means: the calling coroutine waits,
 * the thread goes on with the others. A blocking call needs a coroutine
 * (-EPERM outside one) and, besides the errors it names, can return
 *   -ECANCELED  coro_cancel() was called on the coroutine, or the stack stops
 *   -ETIMEDOUT  the coroutine's deadline, or the connection's own, has passed
 * Calls on a connection can return
 *   -EBADF      it is NULL, or was closed: by another coroutine while this one
 *               was blocked in it, or before. Its memory is used again, so that
 *               to call on with a closed one is wrong even so.
 *   -ECANCELED  net_cancel() was called on the connection
 *   -EBUSY      another coroutine is blocked reading from (or writing to) it:
 *               one reader and one writer at a time
 *   -ENOBUFS    memory was short (net_opts.memory_bytes) and it was among the
 *               greediest: it has been reset
 * Calls return 0 or a count, or a negative errno.
 *
 * Coroutines have shared stacks by default: nothing a connection, another
 * coroutine or a timer keeps may point into one (see coronet/coro.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

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

/*
 * Everything the common options say. Start from net_opts_init(). Strings are
 * borrowed until net_stack_open() returns.
 */
struct net_opts {
	const char *links[NET_MAX_LINKS]; /* "KIND:NAME[,key=value...]" */
	unsigned n_links;
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
	bool pmtud_off;	    /* no path MTU discovery (RFC 1191, 8201), no DF */
	unsigned max_conns; /* connections, 1 to 4,000,000 */
	unsigned counted_conns; /* of those that count for net_conn_stats() */
	/* resident memory of the process, hugepages included, 0: a quarter of
	   the machine's, or of what its control group may use */
	uint64_t memory_bytes;
	/* A coroutine that keeps all others waiting for so long is named in the
	 * log, at most once a second; 0: none is. Default 1000. */
	unsigned watchdog_ms;
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

struct net_stack;

/*
 * Starts DPDK, opens the links and brings the addresses up. The calling
 * thread becomes the stack's; a coroutine scheduler is opened on it.
 * Returns 0 or -errno with opts->error set: -EINVAL (an option is wrong),
 * -EACCES or -EPERM, -ENODEV, -ENOMEM (memory_bytes is less than the stack
 * itself needs, for one), -EALREADY (one stack a process)...
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
 * has them, and -EINVAL (no such shard, or no fn).
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
	uint64_t time_wait_recycled; /* ended early: blocks ran short */
	uint64_t ooseq_drops;	     /* out of order, beyond the budget */
	/* SYNs answered without keeping anything, and the ACKs of such */
	uint64_t cookies_sent, cookies_accepted, cookies_refused;
	/* segments dropped as RFC 9293 and RFC 5961 want it, and answers */
	uint64_t rx_unacceptable, challenge_acks;
	/* Closed but not done, and reset since there were too many of them. */
	uint64_t orphans_recycled;
	/* frames of protocols or options not taken, or with nothing to tell */
	uint64_t rx_refused;
	/* packets lost as too many neighbours were being asked for */
	uint64_t neighbours_refused;
	/*
	 * MSS lowered since a router said so, or since full segments vanished;
	 * "too big" of what was not under way, not believed (RFC 5927)
	 */
	uint64_t path_mtu_lowered, path_mtu_guessed, path_mtu_refused;
	uint64_t log_dropped; /* lines that stderr did not take */
	int64_t busy_ns;      /* time spent in rounds that found work */
	unsigned conns;	      /* TCP control blocks now */
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

/* ---- logging ---- */

/*
 * Logs a line on stderr without ever blocking the caller, as printf(3) on
 * stderr would when nobody reads the pipe behind it: the polling thread and
 * every connection with it would stand still. While a stack is open a thread of
 * its own writes; up to 256 lines wait for it. More are dropped and counted
 * (net_stats.log_dropped), and the next line that can be written says how many.
 * A closed stderr loses lines, too, and no more: while a stack is open SIGPIPE
 * does not end the process, unless the program has set its own action.
 *
 * The newline is added; control characters become '?'; a line is cut at 511
 * bytes. Any thread. Not for the path of a packet: it formats, and may wake
 * the thread that writes.
 */
__attribute__((format(printf, 1, 2))) void net_log(const char *format, ...);

/* The same for bytes as they are: no newline is added. At most 512 are taken.
 */
void net_log_write(const char *text, size_t len);

/* What may recur by the thousand; static, zero at first. */
struct net_log_limit {
	int64_t next_ns;
	uint32_t suppressed;
};

/*
 * Logs at most one line a second for each limit. A line tells how many before
 * it were suppressed. Any thread; the stack has to be open, as time stands
 * still without one.
 */
__attribute__((format(printf, 2, 3))) void
net_log_limited(struct net_log_limit *limit, const char *format, ...);

/* net_log_limited() with a limit for this place in the source. */
#define net_log_seldom(...)                                                    \
	do {                                                                   \
		static struct net_log_limit net_log_limit_;                    \
		net_log_limited(&net_log_limit_, __VA_ARGS__);                 \
	} while (0)

/* ---- listening ---- */

struct net_conn;
struct net_listener;

/*
 * Runs in a coroutine of its own; returning closes the connection, unless the
 * handler has done so itself.
 */
typedef void (*net_handler)(struct net_conn *conn, void *arg);

/*
 * Listens. addr: family 0 means every address of the stack, IPv4 and IPv6.
 * backlog: connections half open or not yet accepted; 0: 4096.
 * A port of 0: one that is free is chosen, from 16384 on; net_listener_addr()
 * tells. A listener of an address goes before one of every address on its port.
 * Returns 0, -EADDRINUSE (the same address and port, or no port is left),
 * -EADDRNOTAVAIL (not this stack's), -EINVAL (NULL), -ECANCELED (the stack
 * stops), -ENOMEM. *out is owned by the caller.
 */
int net_listen(struct net_stack *stack, const struct net_addr *addr,
	       unsigned backlog, struct net_listener **out);

/* Where it listens, the port that was chosen included. */
struct net_addr net_listener_addr(const struct net_listener *listener);

/*
 * Limits of a listener, each 0 for its default. Listeners of one port count
 * their clients together. A client counts from the end of its handshake until
 * its handler has returned (or its owner has let go of it) and TCP has
 * delivered what was queued; TIME_WAIT does not count. A source is an IPv4
 * address or an IPv6 /64.
 */
struct net_limits {
	unsigned clients; /* in all; default: --max-conns alone */
	/* default: half of --max-conns, 1024 at least */
	unsigned clients_per_source;
	/* beyond it SYN cookies; default: half the backlog, 64 at least */
	unsigned half_open_per_source;
};

/*
 * Sets the limits of a listener, from now on: clients that are there already
 * stay. A SYN beyond a limit of clients is dropped and counted
 * (net_stats.clients_refused), so a client that tries again, as every TCP does,
 * gets in when there is room. Returns 0, -EBADF or -EINVAL for NULL.
 */
int net_listener_limit(struct net_listener *listener,
		       const struct net_limits *limits);

/* How many clients the listener's port has now. */
unsigned net_listener_clients(const struct net_listener *listener);

/*
 * Blocks until a connection is there; *out is owned by the caller.
 * -EINVAL when the listener has been closed meanwhile, -EBUSY when another
 * coroutine is blocked in it, -EBADF for NULL.
 */
int net_accept(struct net_listener *listener, struct net_conn **out);

/*
 * Takes no new clients from now on: a SYN is answered with RST, and so are ACKs
 * of SYN cookies. Those whose handshake has begun still come, to net_accept()
 * or the handler. Does not block. Returns how many of them there are, half open
 * or not yet accepted, so that whoever ends a service in good order calls it
 * until that is 0, or for as long as a handshake may take; -EBADF for NULL.
 */
int net_listener_drain(struct net_listener *listener);

/*
 * Connections not accepted yet are reset; listener is gone. After
 * net_stack_run() has returned a listener no longer listens, but is still to be
 * closed; net_stack_close() closes those that are left. NULL is ignored.
 */
void net_listener_close(struct net_listener *listener);

/*
 * Gives every connection of the listener a coroutine running handler(conn,
 * arg) from now on. Does not block. Returns 0, -EBADF or -EINVAL for NULL.
 */
int net_listener_serve(struct net_listener *listener, net_handler handler,
		       void *arg);

/*
 * The whole of a simple server: listens at addr on every shard, announces
 * "listening on ..." on stdout once, serves, runs the program until it is
 * stopped, closes the listeners and the stack. handler runs on the shard that
 * its connection belongs to; arg is shared by all shards. Not from a coroutine.
 * Returns 0, or what net_listen() returned, said on stderr.
 */
int net_serve(struct net_stack *stack, const struct net_addr *addr,
	      net_handler handler, void *arg);

/*
 * net_serve() with limits (NULL: none but the defaults), as
 * net_listener_limit() takes them: each shard has its own clients to count.
 */
int net_serve_limited(struct net_stack *stack, const struct net_addr *addr,
		      const struct net_limits *limits, net_handler handler,
		      void *arg);

/* ---- connections ---- */

/* Zero means the default. */
struct net_dial_opts {
	struct net_addr source; /* family 0: chosen; port 0: chosen */
	unsigned timeout_ms;	/* 0: lwIP's own, about 30 s */
};

/*
 * Connects to addr; opts may be NULL. Blocks. *out is owned by the caller.
 * -ECONNREFUSED (the peer said no), -EHOSTUNREACH (no route, or nobody
 * answers for the address), -ETIMEDOUT, -EADDRNOTAVAIL (source not ours, or
 * no port left: then for 50 ms, as looking takes long), -EADDRINUSE (source
 * port taken), -EINVAL (NULL, or no address or port), -ENOMEM.
 */
int net_dial(struct net_stack *stack, const struct net_addr *addr,
	     const struct net_dial_opts *opts, struct net_conn **out);

/* Views a connection may have out; net_recv_view() says -ENOBUFS beyond. */
#define NET_VIEWS_MAX 256

/*
 * Received bytes where the NIC put them. Owned by the caller until
 * net_view_release() or net_send_view(), or until its handler returns; without
 * a handler, until the connection is closed. What has not been released by then
 * is reclaimed, counted (net_stats.views_reclaimed) and logged. The struct
 * itself may lie on a coroutine's stack, the bytes never do.
 */
struct net_view {
	const void *data;
	size_t len;
	void *owner; /* private */
};

/*
 * Blocks until bytes are there. Returns how many (the next piece in order),
 * 0 when the peer has finished sending, -ECONNRESET, -ENOTCONN (shut down for
 * reading here), -ENOBUFS (NET_VIEWS_MAX are out; nothing is lost). The window
 * opens again as soon as bytes are taken.
 */
long net_recv_view(struct net_conn *conn, struct net_view *view);

/*
 * Gives the bytes back and empties *view; an empty one is ignored. A copy of a
 * view that has been released, sent or reclaimed is recognised, logged and
 * counted (net_stats.view_misuses), and harms nobody.
 */
void net_view_release(struct net_conn *conn, struct net_view *view);

/* Copies at most len bytes. Blocks until there is one. As net_recv_view(). */
long net_recv(struct net_conn *conn, void *buf, size_t len);

/* Blocks until len bytes or the end: returns less than len only at the end. */
long net_recv_full(struct net_conn *conn, void *buf, size_t len);

#define NET_DELIM_MAX	   64		/* bytes of a delimiter */
#define NET_RECV_UNTIL_MAX (128 * 1024) /* bytes before it, itself included */

/*
 * Blocks until the delimiter has come and copies the bytes up to it and itself,
 * at most len; what comes after it stays for the next call. Returns how many,
 * 0 when the peer has finished sending and nothing is left, or
 *   -EMSGSIZE  the first len bytes hold no delimiter; or NET_RECV_UNTIL_MAX do,
 *              or as many as the window takes (64 KiB where the peer does not
 *              scale it, RFC 7323): it opens only when bytes are read
 *   -ENODATA   the peer has finished sending, and what is left holds none
 *   -EINVAL    the delimiter is empty, longer than NET_DELIM_MAX or than len
 * and the errors of net_recv(). With any error nothing is lost: what has come
 * can still be read by any call.
 */
long net_recv_until(struct net_conn *conn, void *buf, size_t len,
		    const void *delim, size_t delim_len);

#define NET_IOV_MAX 1024 /* vectors a call takes; more: -EINVAL */

/*
 * As net_recv(), into several buffers, one after the other; empty ones are
 * skipped. -EINVAL also if their sum is beyond LONG_MAX.
 */
long net_recvv(struct net_conn *conn, const struct iovec *iov, unsigned n);

/*
 * Queues bytes for sending (copied). Blocks while the send buffer is full.
 * Returns how many were taken, at least one; -EPIPE after net_shutdown(), or
 * when the connection is closed; -ECONNRESET; -ENOMEM.
 */
long net_send(struct net_conn *conn, const void *buf, size_t len);

/*
 * Blocks until net_send() would take something without blocking: how many
 * bytes at most, or an error as net_send() gives it.
 */
long net_writable(struct net_conn *conn);

/*
 * All of them: returns len or an error, which does not tell how many bytes
 * went before it.
 */
long net_send_all(struct net_conn *conn, const void *buf, size_t len);

/* As net_send() and net_send_all(), from several buffers: net_recvv(). */
long net_sendv(struct net_conn *conn, const struct iovec *iov, unsigned n);
long net_sendv_all(struct net_conn *conn, const struct iovec *iov, unsigned n);

/*
 * Takes a buffer back: called once for each that was given away, on the
 * stack's thread and in no coroutine's place. It may free memory and make
 * coroutines ready; it must not block.
 */
typedef void (*net_release)(void *arg);

/*
 * Queues bytes for sending without copying them: the buffer is the stack's
 * until release(arg) gives it back. That is exactly once, whatever this call
 * returns but -EINVAL (no release, no data): when the peer has acknowledged
 * every byte and no frame on its way out refers to one, or when the connection
 * has ended otherwise, or after an error when what was queued has left. It is
 * never before this call returns, unless -ENOMEM is all there was to do. Until
 * then the bytes must not change, since they may be sent again, and they must
 * not lie on a coroutine's stack: on a shared one the process ends with a
 * sentence that says so.
 *
 * Blocks while the send buffer is full. Returns len, or an error as net_send()
 * gives it: the first bytes may then have been queued.
 *
 * Links that hand addresses to a device or another process (vhost, pci,
 * af_xdp) get a copy, made when a segment goes out.
 */
long net_send_owned(struct net_conn *conn, const void *data, size_t len,
		    net_release release, void *arg);

/*
 * Sends a view and releases it, whatever comes. Returns its length or an error
 * as net_send() gives it. A large view is sent from where it was received, as
 * long as such views hold few of the port's frames, and copied otherwise.
 * -EINVAL: the view is not out any more (see net_view_release()).
 */
long net_send_view(struct net_conn *conn, struct net_view *view);

enum net_shut { NET_SHUT_RD = 1, NET_SHUT_WR = 2, NET_SHUT_RDWR = 3 };

/*
 * Ends one direction or both: WR sends FIN after what is queued, RD discards
 * what comes. A call blocked in that direction returns. 0, -ENOTCONN (the
 * connection is over), -EINVAL (how).
 */
int net_shutdown(struct net_conn *conn, enum net_shut how);

/*
 * Closes gracefully: what is queued is still delivered, FIN follows, and lwIP
 * goes on trying for as long as TCP does (minutes, if the peer is silent). If
 * bytes have arrived that nobody has read, the peer gets RST instead (RFC 2525
 * 2.17). Does not block; conn is gone. Other coroutines blocked in it: -EBADF.
 * NULL is ignored, as is a connection closed already.
 */
void net_close(struct net_conn *conn);

/*
 * Closes gracefully and blocks until the peer has acknowledged everything, the
 * FIN too, or the deadline (absolute, net_now_ns; CORO_FOREVER: none but the
 * coroutine's) has passed. Bytes the peer sends meanwhile, or had sent, are
 * thrown away: a RST for them could destroy what it has yet to read. Returns
 *   0             the peer's TCP has it all (its application: who knows)
 *   -ETIMEDOUT    it has not; it was sent a RST. Also when TCP itself gave up
 *   -ECONNRESET   the peer sent a RST first
 *   -ECONNABORTED another coroutine called net_abort() meanwhile
 *   -ECANCELED    of the coroutine, net_cancel(), or the stack stops: no longer
 *                 waited for; delivery goes on as after net_close()
 * and conn is gone, whichever it is; but it is not for
 *   -EPERM        outside a coroutine
 *   -EBUSY        another coroutine is blocked writing to it
 *   -EBADF        there is none
 */
int net_close_wait(struct net_conn *conn, int64_t deadline_ns);

/* Sends RST; conn is gone. NULL or closed: ignored. Blocked calls: -EBADF. */
void net_abort(struct net_conn *conn);

/*
 * Makes every call blocked on the connection return -ECANCELED now, and those
 * made later at once, even if there are bytes to read. Its owner still closes
 * it, in any way; net_close_wait() after a cancel waits as ever. From any
 * coroutine, timer or wake-up of the thread. Returns 0, -EBADF.
 */
int net_cancel(struct net_conn *conn);

/* ---- waiting for several things ---- */

#define NET_POLL_MAX 512 /* items a net_poll() takes */

/*
 * What an item waits for, and what it is told. A condition lasts until it is
 * dealt with: asking again reports it again (level-triggered).
 */
enum net_poll_events {
	/* net_recv() would not block: bytes, the end, an error. A listener:
	 * net_accept() would not. A channel: it can be received from. */
	NET_READABLE = 1,
	/* net_send() would not block. A channel: it can be sent to. */
	NET_WRITABLE = 2,
	/* The peer has finished sending. A channel: it is closed. */
	NET_PEER_CLOSED = 4,
	/* Told whether asked or not: */
	NET_FAILED = 8, /* the connection is over: reset, timed out,
			   cancelled, or closed both ways */
	NET_GONE = 16,	/* closed by another coroutine: don't use it again */
};

struct coro_chan;

/* One of conn, listener and chan, or none: such an item is never ready. */
struct net_poll_item {
	struct net_conn *conn;
	struct net_listener *listener;
	struct coro_chan *chan; /* coronet/coro_chan.h */
	unsigned events;	/* enum net_poll_events, 0: the told ones */
	unsigned revents;	/* out: what is so now */
};

/*
 * Blocks until at least one item is ready or the deadline (absolute,
 * net_now_ns; CORO_FOREVER: none) has passed; a deadline that has passed makes
 * it look and return, from anywhere on the thread. The array may lie on the
 * coroutine's stack. Any number of coroutines may poll one object, beside one
 * that is blocked in it. Takes nothing: a coroutine that was told may find that
 * another one was faster, and block. Returns how many items have revents, 0 at
 * the deadline, -ETIMEDOUT at the coroutine's own, -ECANCELED, -EPERM, -EINVAL
 * (more than NET_POLL_MAX items, two objects in one, unknown events), -ENOMEM.
 */
int net_poll(struct net_poll_item *items, unsigned n, int64_t deadline_ns);

/*
 * Absolute times (net_now_ns) after which reads, or writes, return
 * -ETIMEDOUT; CORO_FOREVER takes them away. A call that is blocked already
 * keeps the one it began with. Without memory for the first, -ENOMEM is what
 * the connection fails with.
 */
void net_set_read_deadline(struct net_conn *conn, int64_t deadline_ns);
void net_set_write_deadline(struct net_conn *conn, int64_t deadline_ns);

/* TCP_NODELAY, on by default. */
void net_set_nodelay(struct net_conn *conn, bool on);

/*
 * Keepalive probes: idle and interval in seconds, 1 to 1,000,000, count 1 to
 * 255, and all of it, idle + count * interval, at most 4,294,967 s (49 days);
 * idle 0 turns them off. 0, -EINVAL, -ENOTCONN (it is over), -EBADF.
 */
int net_set_keepalive(struct net_conn *conn, unsigned idle_s,
		      unsigned interval_s, unsigned count);

/*
 * A connection without a coroutine, for programs that are all small steps, such
 * as load generators. fn is called from the loop after each segment and each
 * timer that concerned the connection, whatever they changed, outside any
 * coroutine. Calls on the connection that would block return -EAGAIN;
 * net_recv_view() until it does, or returns 0 or another error, is how bytes,
 * the peer's end and a failure are learnt. fn may close or abort the
 * connection.
 */
struct net_watch {
	void (*fn)(struct net_conn *conn, struct net_watch *watch);
};

/*
 * watch is borrowed until the connection is closed or another, or NULL (none),
 * takes its place; no coroutine may be blocked on the connection. What has
 * arrived before is not told: look once after this call.
 */
void net_set_watch(struct net_conn *conn, struct net_watch *watch);

/* RFC 9293 3.3.2 */
enum net_tcp_state {
	NET_TCP_CLOSED, /* over: nothing of it is left but this handle */
	NET_TCP_LISTEN,
	NET_TCP_SYN_SENT,
	NET_TCP_SYN_RCVD,
	NET_TCP_ESTABLISHED,
	NET_TCP_FIN_WAIT_1,
	NET_TCP_FIN_WAIT_2,
	NET_TCP_CLOSE_WAIT,
	NET_TCP_CLOSING,
	NET_TCP_LAST_ACK,
	NET_TCP_TIME_WAIT,
};

/*
 * After the end: as it was then. What must be counted (below the line) costs 64
 * bytes a connection: those count that began while fewer than
 * net_opts.counted_conns did; for the others it is 0.
 */
struct net_conn_stats {
	enum net_tcp_state state;
	uint32_t mss;		    /* bytes we send in a segment */
	uint32_t rtt_us, rttvar_us; /* RFC 6298; 0: not measured yet */
	uint32_t rto_us;	    /* retransmission timeout now */
	uint32_t cwnd, ssthresh;    /* congestion control, bytes */
	uint32_t snd_wnd, rcv_wnd;  /* what the peer takes, what we take */
	uint32_t unread;	    /* bytes received, not read */
	uint32_t unsent, unacked;   /* bytes queued, bytes in flight */
	/* ---- */
	bool counted;		     /* it counts */
	uint64_t rx_bytes, tx_bytes; /* in order; sent, each byte once */
	uint32_t rx_segs, tx_segs;   /* modulo 2^32, ACKs and all */
	uint32_t retransmits;	     /* segments sent again, for any reason */
	uint16_t rtos;		     /* timeouts; this and those below stop */
	uint16_t dup_acks;	     /* counting at 65,535 */
	uint16_t out_of_order;	     /* segments that came before their turn */
};

/* Fills *out from what is there, which costs next to nothing. 0, -EBADF. */
int net_conn_stats(const struct net_conn *conn, struct net_conn_stats *out);

/* Also of one that is over; family 0 for NULL. */
struct net_addr net_local_addr(const struct net_conn *conn);
struct net_addr net_peer_addr(const struct net_conn *conn);
struct net_stack *net_conn_stack(const struct net_conn *conn);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
