/*
 * Connections in TIME_WAIT. A connection without an owner only has to repeat
 * its last ACK, for a second: it becomes a record of 48 bytes, and its memory
 * is free for the next connection.
 *
 * Records lie in blocks in the order in which they were made, which is nearly
 * the order in which they end. A record that ends early, because a newer SYN
 * replaces it, stays in its block until its turn; a record that was restarted,
 * because the peer's FIN came again, is moved to the end at its turn.
 */
#include "netstack/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

#define WAIT_TICKS (2 * TCP_MSL / TCP_SLOW_INTERVAL)
#define AT_ONCE	   256u /* records that end in one round */

#define CHALLENGE_SHIFT 9 /* one in 2^9 ms */

/* The other bits of `local_index`. */
#define SLOT	NET_LOCAL_BITS /* two bits: when a challenge was last sent */
#define STAMPED (1u << (NET_LOCAL_BITS + 2)) /* with timestamps */
#define AGAIN	(1u << (NET_LOCAL_BITS + 3)) /* its time began again: moved */
#define LIVE	(1u << (NET_LOCAL_BITS + 4)) /* it has not ended early */
static_assert(LIVE <= 1u << 15, "`local_index` holds it");

struct net_wait {
	struct net_wait *hash_next;
	uint32_t remote[4];
	uint16_t remote_port, local_port;
	uint32_t snd_nxt, rcv_nxt;
	uint32_t ts_recent; /* RFC 7323, if STAMPED */
	uint16_t local_index;
	uint16_t wnd; /* as the header has it, host order */
	uint8_t ttl, tos, zone;
	uint8_t until; /* of tcp_ticks, WAIT_TICKS ahead at most */
};
static_assert(sizeof(struct net_wait) <= 48, "a million of them are 46 MiB");

#define BLOCK_BYTES 4608u /* a class of mem/slab.c */
#define BLOCK_WAITS ((BLOCK_BYTES - 16) / sizeof(struct net_wait))

struct net_wait_block {
	struct net_wait_block *next;
	uint16_t first, end; /* of waits: those between are in it */
	struct net_wait waits[BLOCK_WAITS];
};
static_assert(sizeof(struct net_wait_block) <= BLOCK_BYTES, "no byte more");

#undef net_time_waits
NET_SHARD_VAR struct net_time_wait_table net_time_waits;
#define net_time_waits NET_SHARD(net_time_waits)

static const ip_addr_t *local_of(const struct net_wait *wait)
{
	return net_local_index_ip(wait->local_index);
}

static ip_addr_t remote_of(const struct net_wait *wait)
{
	return net_remote_unpack(wait->remote, wait->local_index, wait->zone);
}

/* ---- the table ---- */

static struct net_wait **bucket_of(uint32_t hash)
{
	const struct net_time_wait_table *all = &net_time_waits;

	return &all->buckets[hash & all->bucket_mask];
}

static struct net_wait **bucket_of_wait(const struct net_wait *wait)
{
	ip_addr_t remote = remote_of(wait);

	return bucket_of(net_demux_hash(local_of(wait), wait->local_port,
					&remote, wait->remote_port));
}

static struct net_wait *find_record(uint32_t hash, const ip_addr_t *local,
				    uint16_t local_port,
				    const ip_addr_t *remote,
				    uint16_t remote_port)
{
	struct net_wait *wait;

	if (!net_time_waits.n)
		return NULL;
	for (wait = *bucket_of(hash); wait; wait = wait->hash_next) {
		ip_addr_t its = remote_of(wait);

		if (wait->remote_port == remote_port &&
		    wait->local_port == local_port &&
		    ip_addr_eq(&its, remote) &&
		    ip_addr_eq(local_of(wait), local))
			break;
	}
	return wait;
}

/* Ends a record; its entry is freed when its turn comes. */
static void end_record(struct net_wait *wait)
{
	struct net_wait **at = bucket_of_wait(wait);

	while (*at != wait)
		at = &(*at)->hash_next;
	*at = wait->hash_next;
	wait->local_index &= (uint16_t)~LIVE;
	net_time_waits.n--;
}

/* ---- the order ---- */

static struct net_wait *first_record(void)
{
	struct net_wait_block *block = net_time_waits.oldest;

	return block ? &block->waits[block->first] : NULL;
}

/* Frees the first entry, whose record has ended. */
static void free_first(void)
{
	struct net_time_wait_table *all = &net_time_waits;
	struct net_wait_block *block = all->oldest;

	if (++block->first < block->end)
		return;
	all->oldest = block->next;
	if (!all->oldest)
		all->newest = NULL;
	net_mem_free(block);
}

/* Ends the oldest record early. */
static void recycle_record(void)
{
	if (first_record()->local_index & LIVE) {
		net_here()->stats.time_wait_recycled++;
		end_record(first_record());
	}
	free_first();
}

static struct net_wait_block *make_block(void)
{
	struct net_wait_block *oldest = net_time_waits.oldest;
	struct net_wait_block *block = net_mem_malloc(sizeof(*block));

	if (block || !oldest)
		return block;
	for (unsigned n = oldest->end - oldest->first; n; n--)
		recycle_record();
	return net_mem_malloc(sizeof(*block));
}

/* Returns the entry behind the newest; NULL: no memory. */
static struct net_wait *take_slot(void)
{
	struct net_time_wait_table *all = &net_time_waits;
	struct net_wait_block *block = all->newest;

	if (block && block->end < BLOCK_WAITS)
		return &block->waits[block->end++];
	block = make_block();
	if (!block)
		return NULL;
	block->next = NULL;
	block->first = 0;
	block->end = 1;
	if (all->newest)
		all->newest->next = block;
	else
		all->oldest = block;
	all->newest = block;
	return &block->waits[0];
}

/* Appends a record; without memory it has ended. */
static void append_record(const struct net_wait *what)
{
	struct net_wait *wait = take_slot(), **bucket;

	if (!wait) {
		net_here()->stats.time_wait_recycled++;
		return;
	}
	*wait = *what;
	bucket = bucket_of_wait(wait);
	wait->hash_next = *bucket;
	*bucket = wait;
	net_time_waits.n++;
}

/* ---- time ---- */

static unsigned ticks_left(const struct net_wait *wait)
{
	return (uint8_t)(wait->until - tcp_ticks);
}

static bool is_over(const struct net_wait *wait)
{
	return ticks_left(wait) > WAIT_TICKS;
}

static void arm_timer(void)
{
	struct net_time_wait_table *all = &net_time_waits;
	unsigned ticks;

	if (!all->oldest || coro_timer_armed(&all->timer))
		return;
	ticks = is_over(first_record()) ? 0 : ticks_left(first_record()) + 1;
	coro_timer_arm(net_here()->sched, &all->timer,
		       net_here()->now_ns + ticks * NET_TICK_NS);
}

/* Handles records whose turn has come, at most AT_ONCE in a round. */
static void handle_due(struct coro_timer *timer)
{
	for (unsigned n = 0; n < AT_ONCE && first_record(); n++) {
		struct net_wait *wait = first_record(), again = *wait;

		if ((wait->local_index & (LIVE | AGAIN)) == LIVE &&
		    !is_over(wait))
			break;
		if (wait->local_index & LIVE)
			end_record(wait);
		free_first();
		if ((again.local_index & LIVE) && !is_over(&again)) {
			again.local_index &= (uint16_t)~AGAIN;
			append_record(&again);
		}
	}
	arm_timer();
}

int net_time_wait_init(void)
{
	struct net_time_wait_table *all = &net_time_waits;

	all->buckets =
		net_mem_map_table(net_here()->max_conns / 4, &all->bucket_mask);
	if (!all->buckets)
		return -ENOMEM;
	coro_timer_init(&all->timer, handle_due);
	return 0;
}

/* The memory of blocks is in slabs, which are freed as a whole. */
void net_time_wait_fini(void)
{
	struct net_time_wait_table *all = &net_time_waits;

	if (!all->buckets)
		return;
	coro_timer_cancel(net_here()->sched, &all->timer);
	net_mem_unmap_table(all->buckets, all->bucket_mask);
	memset(all, 0, sizeof(*all));
}

/* ---- entering ---- */

static unsigned challenge_slot(void)
{
	return net_now_ms() >> CHALLENGE_SHIFT & 3;
}

static void set_slot(struct net_wait *wait, unsigned slot)
{
	wait->local_index &= (uint16_t) ~(3u << SLOT);
	wait->local_index |= (uint16_t)((slot & 3) << SLOT);
}

static void record_conn(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	struct net_wait wait = {
		.remote_port = pcb->remote_port,
		.local_port = pcb->local_port,
		.snd_nxt = pcb->snd_nxt,
		.rcv_nxt = pcb->rcv_nxt,
		.ts_recent = conn->pcb.ts_recent,
		.until = (uint8_t)(pcb->tmr + WAIT_TICKS),
		.wnd = TCPWND_MIN16(RCV_WND_SCALE(pcb, pcb->rcv_ann_wnd)),
		.ttl = pcb->ttl,
		.tos = pcb->tos & ~NET_ECN_FIELD,
	};

	if (!net_local_index_of(&pcb->local_ip, &wait.local_index))
		return;
	wait.local_index |= LIVE | (pcb->flags & NET_TF_TS ? STAMPED : 0);
	set_slot(&wait, challenge_slot() - 1);
	net_remote_pack(&pcb->remote_ip, wait.remote, &wait.zone);
	append_record(&wait);
}

/* Does nobody hold it, and has its ACK left? */
static bool is_silent(const struct net_conn *conn)
{
	return !conn->owned && !conn->pcb.unsent &&
	       !(conn->pcb.flags & (TF_ACK_NOW | TF_ACK_DELAY));
}

bool net_time_wait_check(struct net_conn *conn)
{
	struct net_time_wait_table *all = &net_time_waits;

	conn->in_time_wait = true;
	net_recovery_free(conn); /* there is nothing left to repair */
	net_orphan_leave(conn);
	net_client_check(conn);
	if (!is_silent(conn))
		return false;
	while (all->n >= net_here()->max_conns)
		recycle_record();
	record_conn(conn);
	tcp_abort(&conn->pcb); /* of TIME_WAIT: sends nothing */
	arm_timer();
	return true;
}

/* ---- input in TIME_WAIT ---- */

static bool syn_renews_wait(const struct net_wait *wait,
			    const struct tcp_hdr *tcp)
{
	const struct net_past past = {
		.rcv_nxt = wait->rcv_nxt,
		.snd_nxt = wait->snd_nxt,
		.ts_recent = wait->ts_recent,
		.has_ts = wait->local_index & STAMPED,
	};

	return net_handshake_renews(tcp, &past);
}

static void answer_from_record(const struct net_wait *wait)
{
	ip_addr_t remote = remote_of(wait);
	struct net_reply reply = {
		.ttl = wait->ttl,
		.tos = wait->tos,
		.from = local_of(wait),
		.to = &remote,
		.from_port = wait->local_port,
		.to_port = wait->remote_port,
		.seq = wait->snd_nxt,
		.ack = wait->rcv_nxt,
		.flags = TCP_ACK,
		.wnd = wait->wnd,
	};

	if (wait->local_index & STAMPED) {
		net_ts_write(reply.options,
			     net_ts_now() +
				     net_ts_offset(reply.from, reply.from_port,
						   reply.to, reply.to_port),
			     wait->ts_recent);
		reply.options_len = NET_TS_BYTES;
	}
	net_reply_send(&reply);
}

/* RFC 5961 section 7. */
static void challenge_peer(struct net_wait *wait)
{
	unsigned slot = challenge_slot();

	if ((wait->local_index >> SLOT & 3) == slot)
		return;
	set_slot(wait, slot);
	net_here()->stats.challenge_acks++;
	answer_from_record(wait);
}

/*
 * RFC 7323 3.2 and 5.3, as in tcp/check.c. False: it has been answered, if that
 * is due.
 */
static bool check_timestamp(struct net_wait *wait, const struct tcp_hdr *tcp,
			    bool longer)
{
	struct net_ts ts;

	if (!(wait->local_index & STAMPED))
		return true;
	if (!net_ts_read(tcp, &ts))
		return false;
	if ((int32_t)(ts.value - wait->ts_recent) >= 0)
		return true;
	if (longer)
		answer_from_record(wait);
	else
		challenge_peer(wait);
	return false;
}

/*
 * RFC 9293 3.10.7.4, TIME-WAIT: the peer's FIN is acknowledged when it comes
 * again, and restarts the time; RFC 1337: a reset ends nothing. A SYN beyond
 * everything received reopens the connection, with numbers beyond all of the
 * old one's.
 */
__attribute__((noinline)) static bool input_to_record(const struct pbuf *p)
{
	const struct tcp_hdr *tcp = p->payload;
	uint8_t flags =
		TCPH_FLAGS(tcp) & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);
	bool longer = (flags & TCP_FIN) || p->tot_len > TCPH_HDRLEN_BYTES(tcp);
	struct net_wait *wait =
		find_record(net_here()->rx_hash, ip_current_dest_addr(),
			    lwip_ntohs(tcp->dest), ip_current_src_addr(),
			    lwip_ntohs(tcp->src));
	if (!wait)
		return false;
	if (syn_renews_wait(wait, tcp)) {
		end_record(wait);
		return false;
	}
	if ((flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_ACK) {
		net_here()->stats.rx_unacceptable++;
		if ((flags & (TCP_SYN | TCP_RST)) == TCP_SYN)
			challenge_peer(wait);
		return true;
	}
	if (!check_timestamp(wait, tcp, longer)) {
		net_here()->stats.rx_unacceptable++;
		return true;
	}
	if (flags & TCP_FIN) {
		wait->until = (uint8_t)(tcp_ticks + WAIT_TICKS);
		wait->local_index |= AGAIN;
	}
	if (longer)
		answer_from_record(wait);
	return true;
}

/* A segment that begins a connection rarely has a record in its bucket. */
bool net_time_wait_input(const struct pbuf *p)
{
	return net_time_waits.n && *bucket_of(net_here()->rx_hash) &&
	       input_to_record(p);
}

bool net_time_wait_yields(const ip_addr_t *local, uint16_t local_port,
			  const ip_addr_t *remote, uint16_t remote_port)
{
	uint32_t hash = net_demux_hash(local, local_port, remote, remote_port);
	struct net_wait *wait =
		find_record(hash, local, local_port, remote, remote_port);

	if (!wait)
		return true;
	if ((int32_t)(net_isn(local, local_port, remote, remote_port) -
		      wait->snd_nxt) <= 0)
		return false;
	end_record(wait);
	return true;
}
