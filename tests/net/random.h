/*
 * A random peer: connections drawn from a seed, run through the real stack over
 * the fake port and the virtual clock, and checked at every step.
 *
 * random_rng.c    random numbers from a seed, for the stack as well
 * random_draw.c   the parameters that a seed draws for a life, and its stack
 * random_delay.c  an imperfect path in each direction
 * random_path.c   frames, and what the path does with them
 * random_recv.c   the peer's receiver: windows, acknowledgements, SACK
 * random_peer.c   the peer's connection: handshake, timers, its end
 * random_send.c   the peer's sender: data, retransmission, mischief
 * random_stamp.c  timestamps: the peer's, and checks of the stack's
 * random_ecn.c    ECN: the peer's, a path that marks, and checks of the stack's
 * random_app.c    the application on the stack's side
 * random_watch.c  the application without coroutines
 * random_check.c  invariants, at every frame, round and end
 * random_fault.c  allocations that fail
 * random_trouble.c pauses, path changes and memory shortage
 * random_work.c   a count of the code that runs in a round
 * random_differ.c the same life with header prediction and without
 * random_life.c   one life from beginning to end
 * random_main.c   the command line, the report
 * random_lives.c  options and processes, for several shards as well
 *
 * Both streams are numbered from 0, the first byte of data; a FIN takes the
 * number after the last byte. The peer is a model of its own and shares no
 * code with the stack. Nothing here depends on real time: a seed gives the
 * same life everywhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h" /* struct segment, PEER_* */

#define MS	  INT64_C(1000000)
#define SECOND	  (1000 * MS)
#define NEVER	  INT64_MAX
#define MAX_FLOWS 6
#define PORT	  7 /* the listener's */

/* ---- random_rng.c ---- */

struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
uint32_t rng_below(struct rng *rng, uint32_t n); /* less than n, n > 0 */
uint32_t rng_between(struct rng *rng, uint32_t lo, uint32_t hi);
uint32_t rng_log(struct rng *rng, uint32_t lo, uint32_t hi); /* by magnitude */
bool rng_chance(struct rng *rng, unsigned per_mille);
/* Seeds the stack's source of randomness. */
void seed_entropy(uint64_t seed);

/* ---- random_draw.c ---- */

enum direction { TO_STACK, TO_PEER };

struct path_draw {
	unsigned loss, dup, reorder; /* per mille */
	int64_t delay, jitter;	     /* ns */
};

enum reading { READ_EAGER, READ_SLOW, READ_STALL, READ_ABSENT };
enum fin { FIN_AFTER_DATA, FIN_WITH_DATA, FIN_AFTER_PEERS, FIN_LATE };
enum ending {
	END_RETURN,
	END_CLOSE,
	END_CLOSE_WAIT,
	END_ABORT,
};

/* The drawn parameters of one connection. Times are ns, 0: none. */
struct draw {
	struct path_draw path[2];
	bool dialed;   /* by the stack */
	bool crossing; /* by the peer, too, at once */

	/* the peer's options in the handshake */
	unsigned mss; /* 0: nothing */
	int wscale;   /* -1: nothing */
	bool sack, cookie, near_wrap;
	int64_t ts_tick; /* of its timestamps, ns; 0: it has none */
	uint32_t ts_begin;

	/* the peer's receiver */
	uint32_t room;	    /* bytes of its buffer */
	unsigned ack_every; /* segments */
	int64_t ack_delay;
	unsigned partial, renege, shrink; /* per mille */
	bool dsack, mute;		  /* mute: no window updates */
	enum reading reading;
	uint32_t read_bytes;
	int64_t read_pause;
	uint32_t stall_at;
	int64_t stall;

	/* the peer's sender */
	uint32_t in_bytes; /* to the stack */
	unsigned in_seg;   /* bytes of a segment at most */
	uint32_t in_flight;
	uint32_t in_burst; /* bytes of its application's writes */
	int64_t in_pause;
	unsigned mischief; /* per mille */
	enum fin fin;
	int64_t fin_late, rst_at, vanish_at;

	/* the application */
	bool echo;
	uint32_t out_bytes;
	unsigned writes, reads; /* bit sets of the calls it uses */
	uint32_t write_max, read_max;
	int64_t write_pause, app_read_pause;
	unsigned hold; /* views kept for a while */
	bool shut_wr;  /* when all is written */
	bool shut_rd;
	uint32_t read_until; /* bytes; then it stops reading */
	enum ending ending;
	int64_t linger, deadline, cancel_at;
	int64_t drop_at; /* an operator's reset; 0: none */
	bool keepalive, nagle;
	bool watched;		  /* no coroutine, but callbacks */
	const char *cc;		  /* its congestion control */
	uint32_t pace;		  /* bytes a second at most; 0: any */
	unsigned user_timeout_ms; /* 0: none */

	bool ecn;	   /* the peer asks for it, and agrees to it */
	unsigned marks[2]; /* per mille of ECN-capable packets */
	unsigned ecn_lies; /* per mille of the peer's segments */
};

/* Mean times between troubles, and their durations; ns, 0: never. */
struct trouble_draw {
	int64_t pause_every, pause_for;
	int64_t mtu_every;		/* the path's changes */
	int64_t forge_every;		/* ICMP errors */
	int64_t short_every, short_for; /* memory runs out */
};

struct life_draw {
	uint64_t seed;
	unsigned n_flows;
	unsigned mtu;
	bool ts_off;		 /* --timestamps off */
	enum net_ecn ecn;	 /* --ecn */
	bool lends;		 /* the port takes memory by reference */
	unsigned frame_segments; /* bytes; received frames in pieces */
	int64_t starve_every, starve_for; /* the port sends nothing */
	unsigned fault_from; /* number of the allocation, 0: never */
	unsigned fault_count, fault_rate;
	uint64_t rmem_max, wmem_max; /* bytes; 0: the default */
	struct trouble_draw trouble;
	struct draw flow[MAX_FLOWS];
};

/* sender: lives with more data to the stack */
void draw_life(uint64_t seed, bool sender, struct life_draw *out);
void draw_print(const struct life_draw *draw);
/* Fills `pattern`, once. */
void make_pattern(void);
/* Sets the options of the life's stack, its clock and its port. */
void draw_opts(const struct life_draw *draw, struct net_opts *opts);

/* ---- the state of a life ---- */

struct range {
	uint32_t from, to;
};

#define HELD 24 /* ranges a receiver keeps out of order */

struct peer_rx {
	uint32_t next;		 /* expected; counts the FIN */
	uint32_t read;		 /* by the peer's application */
	uint32_t edge;		 /* announced last */
	uint32_t acked;		 /* sent last */
	struct range held[HELD]; /* the newest first */
	unsigned n_held;
	struct range twice; /* for D-SACK */
	uint32_t fin_at;
	bool has_fin;
	unsigned owed; /* segments since the last ACK */
	bool shrunk, stalled;
	int64_t ack_due, read_due, grow_due;
};

struct peer_tx {
	uint32_t una, next, max; /* acknowledged, to be sent, ever sent */
	uint32_t edge;		 /* of the stack's window */
	uint32_t written;	 /* by the peer's application */
	bool fin_wanted;
	unsigned dups, tries;
	int64_t rto, rto_due, write_due, probe_due, idle_due, fin_due;
	int64_t rst_due, vanish_due, mischief_due;
};

enum peer_state {
	PEER_WAITS,   /* for a SYN */
	PEER_OPENING, /* its SYN is out */
	PEER_ANSWERED,
	PEER_OPEN,
	PEER_RESET,    /* it sent a reset, or got one */
	PEER_VANISHED, /* is silent from now on */
	PEER_GAVE_UP,
};

struct app {
	struct net_conn *conn;
	bool started, ended, ghost;
	bool eof, closed, wr_shut; /* closed: its end has begun */
	bool reader_done, writer_done;
	uint32_t got;		 /* bytes that arrived, all as sent */
	uint32_t sent, sent_max; /* accepted: at least, at most */
	int rd_err, wr_err, end_err, dial_err;
	unsigned loans; /* lent and not returned */
	struct coro *writer;
};

/* Causes that justify an error, or a reset from the stack; bits. */
enum cause {
	BY_PEER = 1,	 /* it reset, or vanished */
	BY_APP = 2,	 /* it aborted, closed unread, cancelled */
	BY_DEADLINE = 4, /* it had set one */
	BY_MEMORY = 8,	 /* allocations were refused */
	BY_SILENCE = 16, /* no segment came until a timeout */
	BY_GHOST = 32,	 /* an old segment made a second connection */
};

struct watch {
	unsigned causes;
	uint32_t edge;		    /* of the peer's window, as delivered */
	uint32_t acked;		    /* by the peer, as delivered */
	uint32_t delivered;	    /* of the peer's stream, to the stack */
	uint32_t our_edge, our_ack; /* as the stack has announced */
	bool announced;
	uint32_t sent;	/* of the stack's stream, ever */
	int64_t heard;	/* when the stack last got a segment */
	int64_t active; /* last progress or segment of the stack's */
	int64_t owes_since, window_since;
	uint32_t owes_after; /* its ACK number at that time */
	int64_t progress;    /* when that last changed */
	unsigned faults;     /* and then */
	int64_t allowed;     /* at the last check */
	uint32_t lastack;    /* of the pcb, when last looked at */
	bool busy;	     /* it has had something to send since `active` */
	bool synack_heard;
};

enum stamp { STAMP_NOW, STAMP_STALE, STAMP_NONE };

/* RFC 7323, both sides. */
struct stamps {
	struct rng rng;
	bool agreed;	 /* in the peer's view */
	uint32_t recent; /* the peer's TS.Recent */
	uint32_t echoed; /* by the stack: it has had this one */
	enum stamp next; /* the next segment's timestamp */
	bool seen, heard, has_echo, has_echoed;
	uint32_t offset; /* of the stack's, from the clock */
	uint32_t echo;	 /* by the stack, the last */
	uint32_t newest; /* that the stack may echo */
};

/* RFC 3168, both sides. */
struct ecn {
	struct rng rng;
	bool asked;	  /* by the stack's SYN, in the peer's view */
	bool agreed;	  /* the same */
	bool quiet;	  /* a SYN of the peer did not ask */
	bool echoes_bits; /* the peer echoes the bits, 6.1.1 */
	bool owes_ece, owes_cwr;
	bool has_asked, syn_left; /* the stack's SYN */
	bool heard_ask;		  /* by the stack: a SYN that asks */
	bool may;		  /* the stack may use it */
	bool has_ce;		  /* it has had a mark, */
	bool comes, must;	  /* has one now, and must echo it */
};

struct flow {
	const struct draw *d;
	unsigned index;
	uint16_t peer_port, stack_port;
	struct rng rng; /* the peer's own */
	struct rng app_rng;
	enum peer_state state;
	uint32_t isn;	    /* the peer's */
	uint32_t stack_isn; /* the stack's, once known */
	bool known_isn;
	bool dropped;	   /* as d->drop_at says */
	bool scaled, sack; /* agreed */
	unsigned stack_scale, stack_mss;
	unsigned syns;
	int64_t syn_due;
	struct peer_rx rx;
	struct peer_tx tx;
	struct stamps ts;
	struct ecn ecn;
	struct app app;
	struct watch watch;
};

struct life {
	struct life_draw draw;
	struct rng rng;
	struct flow flows[MAX_FLOWS];
	struct net_stack *stack;
	struct net_listener *listener;
	uint64_t memory; /* bytes of the slabs' objects at the start */
	int64_t start, next_starve, starve_end;
	bool starving;
	uint64_t rounds, frames;
	unsigned pauses;	    /* of the process */
	int64_t paused;		    /* ns in all */
	uint64_t calls, call_bytes; /* of the application, in this round */
};

extern struct life life;
extern bool verbose;
extern bool over_ip6;	 /* else IPv4 */
extern bool bulk_lives;	 /* long streams in full segments and bursts */
extern bool brief_lives; /* a few segments, and soon an end */

static inline bool seq_after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

static inline uint32_t seq_max(uint32_t a, uint32_t b)
{
	return seq_after(a, b) ? a : b;
}

static inline int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* ---- the two streams ---- */
#define PATTERN 65521u
extern uint8_t pattern[2 * PATTERN];

/* At least PATTERN bytes of a stream from an offset on. */
const uint8_t *stream_at(const struct flow *flow, enum direction to,
			 uint32_t offset);

/* ---- random_delay.c ---- */
struct carried {
	int64_t at;
	uint64_t order; /* order of sending, for equal times */
	struct flow *flow;
	enum direction to;
	unsigned len;
	uint8_t frame[];
};
/* Puts a frame of a flow on the path that the flow has drawn. */
void path_carry(struct flow *flow, enum direction to, const uint8_t *frame,
		unsigned len);
struct carried *path_due(void); /* NULL: none is due; the caller frees it */
int64_t path_next(void);
bool path_empty(void);
void path_reset(void);

/* ---- random_path.c ---- */
#define STACK_ADDR (over_ip6 ? "fd00::1/64" : "10.0.0.1/24")
#define PEER_ADDR  (over_ip6 ? "fd00::2" : "10.0.0.2")
unsigned path_header(void); /* bytes of an IP header */
/*
 * Writes the peer's headers before `payload` bytes; returns where these begin.
 */
uint8_t *path_packet(uint8_t *frame, unsigned proto, unsigned payload);
/* The flow's addresses, as the stack has them. */
void path_addresses(ip_addr_t *local, ip_addr_t *remote);
/* The peer sends; header fields in `s`, addresses filled in. */
void path_send(struct flow *flow, const struct segment *s);
/*
 * Takes the stack's frames: answers ARP, checks segments, hands them to the
 * path.
 */
void path_collect(void);
/* Delivers the packets that are due. */
void path_deliver(void);
void path_trace(const struct flow *flow, const struct segment *s,
		enum direction to, const char *what);

/* ---- random_peer.c, random_recv.c, random_send.c ---- */
void peer_start(struct flow *flow);
void peer_input(struct flow *flow, const struct segment *s);
void peer_run(struct flow *flow); /* its due timers */
int64_t peer_due(const struct flow *flow);
bool peer_over(const struct flow *flow);
void peer_reset(struct flow *flow); /* sends a reset that counts */

/* The segment every other begins with: numbers, window, SACK. */
struct segment peer_segment(struct flow *flow, uint8_t flags, uint32_t offset);

void rx_open(struct flow *flow);
bool rx_acceptable(const struct flow *flow, uint32_t offset, uint32_t len);
void rx_data(struct flow *flow, const struct segment *s, uint32_t offset);
void rx_ack_now(struct flow *flow);
void rx_run(struct flow *flow);
int64_t rx_due(const struct flow *flow);
/* Fills in the ACK number, window and options of the next segment. */
void rx_fill(struct flow *flow, struct segment *s, uint8_t *options);

void tx_open(struct flow *flow);
void tx_ack(struct flow *flow, const struct segment *s);
void tx_run(struct flow *flow);
int64_t tx_due(const struct flow *flow);
bool tx_done(const struct flow *flow); /* its FIN is acknowledged */

/* ---- random_stamp.c ---- */
/* Adds a timestamp to a segment of the peer, into 40 bytes of options. */
void stamp_fill(struct flow *flow, struct segment *s, uint8_t *options);
unsigned stamp_room(const struct flow *flow); /* bytes of other options */
void stamp_take(struct flow *flow, const struct segment *s); /* by the peer */
bool stamp_is_old(const struct flow *flow, const struct segment *s);
void stamp_check_sent(struct flow *flow, const struct segment *s);
void stamp_check_delivered(struct flow *flow, const struct segment *s,
			   uint32_t offset);

/* ---- random_ecn.c ---- */
uint8_t ecn_tos(const uint8_t *ip); /* TOS or traffic class */
void ecn_put_tos(uint8_t *ip, uint8_t tos);
void ecn_travel(struct flow *flow, enum direction to, uint8_t *frame);
void ecn_fill(struct flow *flow, struct segment *s); /* the peer sends */
void ecn_take_syn(struct flow *flow, const struct segment *s);
void ecn_take(struct flow *flow, const struct segment *s); /* by the peer */
void ecn_check_sent(struct flow *flow, const struct segment *s);
void ecn_check_delivered(struct flow *flow, const struct segment *s,
			 uint32_t offset);
void ecn_check_round(struct flow *flow, bool alive);

/* ---- random_app.c ---- */
void app_serve(struct net_conn *conn, void *arg);
void app_dial(struct flow *flow);
bool app_over(const struct flow *flow);
void app_run(struct flow *flow); /* on flow->app.conn, up to its end */
/* Cancels a call, or drops the connection like an operator, when it is due. */
void app_disturb(struct flow *flow);
int64_t app_disturb_due(const struct flow *flow);
/* Compares received bytes with the sent ones. */
void app_take(struct flow *flow, const uint8_t *data, size_t n);
/* Notes the possible consequences of the application's end now. */
void app_note_end(struct flow *flow);

/* ---- random_watch.c ---- */
void app_watch(struct flow *flow); /* once it is connected */

/* ---- random_check.c ---- */
__attribute__((noreturn, format(printf, 2, 3))) void
violated(const struct flow *flow, const char *what, ...);
void check_sent(struct flow *flow, const struct segment *s);
void check_delivered(struct flow *flow, const struct segment *s);
void check_round(void);
bool has_cookie(void); /* a flow of this life was drawn to have one */
void check_error(struct flow *flow, const char *call, int err);
void check_eof(struct flow *flow);
void check_reset_taken(struct flow *flow);     /* by the peer */
void check_closed(struct flow *flow, int err); /* net_close_wait() */
void check_flow_end(struct flow *flow);
void check_life_end(void);

/* ---- random_fault.c ---- */
extern unsigned fault_given; /* allocations refused in this life */
void fault_arm(unsigned from, unsigned count, unsigned rate);
void fault_disarm(void);
void fault_step(void); /* after each round */

/* ---- random_trouble.c ---- */
void trouble_begin(void);
void trouble_end(void); /* there is none any more */
int64_t trouble_due(void);
void trouble_run(void);
/*
 * Returns whether the path forwards a frame; if not, it may report an ICMP
 * error.
 */
bool trouble_passes(const uint8_t *frame, unsigned len);

/* ---- random_work.c ---- */
void work_start(void);
void work_begin(void); /* before a round */
void work_end(unsigned frames);

/* ---- random_differ.c ---- */
bool differ_init(void);
/*
 * Selects the life that follows in this process: 0 with prediction, 1 without.
 * `round` is the one whose values are printed; 0: digests are recorded.
 */
void differ_begin(int which, uint64_t round);
bool differ_lives(void); /* whether this one is compared */
bool differ_predicts(void);
void differ_frame(const uint8_t *frame, unsigned len); /* leaves the stack */
void differ_round(void);
uint64_t differ_first(void); /* round in which two lives differ; 0: in none */
void differ_forget(void);

/* ---- random_life.c ---- */
void life_run(uint64_t seed, bool sender);
