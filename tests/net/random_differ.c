/*
 * The same life twice, with header prediction and without: every frame that
 * leaves, and after every round every field of every pcb, its queues and its
 * recovery must be equal. Each life writes a digest a round; the first round
 * with a difference runs again, and its values are printed.
 */
#include "tests/net/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_ROUNDS (1u << 22) /* that are compared */

struct differ {
	uint64_t rounds[2];
	uint64_t digest[2][MOST_ROUNDS];
};

static struct differ *differ;
static int side = -1;	  /* 0: with prediction, 1: without; -1: not compared */
static uint64_t print_at; /* a round; 0: none */
static uint64_t frames_sum; /* of the frames in this round */
static uint64_t n_rounds;

static uint64_t mix_digest(uint64_t sum, uint64_t value)
{
	sum = (sum ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	return sum ^ sum >> 29;
}

void differ_frame(const uint8_t *frame, unsigned len)
{
	if (side < 0)
		return;
	frames_sum = mix_digest(frames_sum, len);
	for (unsigned i = 0; i < len; i++)
		frames_sum = mix_digest(frames_sum, frame[i]);
	if (print_at == n_rounds + 1)
		for (unsigned i = 14; i < len; i++)
			printf("%02x%s", frame[i],
			       i + 1 == len ? "\n"
			       : i % 4 == 1 ? " "
					    : "");
}

static uint64_t digest;

static void add_field(const char *name, uint64_t value)
{
	digest = mix_digest(digest, value);
	if (print_at == n_rounds)
		printf("  %s %llu\n", name, (unsigned long long)value);
}
#define FIELD(at, name) add_field(#name, (uint64_t)(at)->name)

static void add_segments(const char *queue, const struct tcp_seg *seg)
{
	add_field(queue, seg != NULL);
	for (; seg; seg = seg->next) {
		const struct net_seg *own = (const void *)seg;

		FIELD(seg, len);
		FIELD(seg, flags);
		FIELD(seg, tcphdr->seqno);
		FIELD(seg, tcphdr->_hdrlen_rsvd_flags);
		add_field("pbufs", pbuf_clen(seg->p));
		add_field("state",
			  own->state & ~(NET_SEG_WHOLE | NET_SEG_GONE));
		if (!(own->state & NET_SEG_SENT))
			continue; /* the rest is not initialized */
		FIELD(seg, tcphdr->ackno);
		FIELD(seg, tcphdr->wnd);
		FIELD(own, sent_us);
		if (strcmp(queue, "unacked") == 0) {
			FIELD(own, base_us);
			FIELD(own, last_us);
			FIELD(own, span);
			queue = "next";
		}
	}
}

static void add_sacks(const struct tcp_sack_range *ranges)
{
	for (unsigned i = 0; ranges && i < LWIP_TCP_MAX_SACK_NUM; i++) {
		FIELD(&ranges[i], left);
		FIELD(&ranges[i], right);
	}
}

static void add_pcb(const struct tcp_pcb *pcb)
{
	FIELD(pcb, so_options);
	FIELD(pcb, state);
	FIELD(pcb, local_port);
	FIELD(pcb, remote_port);
	FIELD(pcb, flags);
	FIELD(pcb, tmr);
	FIELD(pcb, rcv_nxt);
	FIELD(pcb, rcv_wnd);
	FIELD(pcb, rcv_ann_wnd);
	FIELD(pcb, rcv_ann_right_edge);
	FIELD(pcb, rtime);
	FIELD(pcb, mss);
	FIELD(pcb, persist_due_us);
	FIELD(pcb, rto);
	FIELD(pcb, nrtx);
	FIELD(pcb, dupacks);
	FIELD(pcb, lastack);
	FIELD(pcb, min_rtt_us);
	FIELD(pcb, cwnd);
	FIELD(pcb, ssthresh);
	FIELD(pcb, bytes_acked);
	FIELD(pcb, snd_nxt);
	FIELD(pcb, snd_wl1);
	FIELD(pcb, snd_wl2);
	FIELD(pcb, snd_lbb);
	FIELD(pcb, snd_wnd);
	FIELD(pcb, snd_wnd_max);
	FIELD(pcb, snd_buf);
	FIELD(pcb, snd_queuelen);
	FIELD(pcb, unsent_oversize);
	FIELD(pcb, persist_steps);
	FIELD(pcb, persist_on);
	FIELD(pcb, persist_probe);
	FIELD(pcb, keep_cnt_sent);
	add_segments("unacked", pcb->unacked);
	add_segments("unsent", pcb->unsent);
}

/*
 * Segments made by prediction are one object, lwIP's are two: memory usage is
 * compared only while there are none.
 */
static bool has_segments;

static void look_for_segments(struct net_conn *conn)
{
	has_segments |= conn->pcb.unacked || conn->pcb.unsent;
}

static void add_conn(struct net_conn *conn)
{
	const struct net_conn_ext *ext = conn->ext;

	add_pcb(&conn->pcb);
	FIELD(&conn->pcb, ts_recent);
	FIELD(conn, err);
	FIELD(conn, waiters);
	FIELD(conn, gate);
	FIELD(conn, orphaned);
	FIELD(conn, in_output);
	FIELD(conn, wants);
	FIELD(conn, challenged);
	FIELD(conn, ticking);
	/* between ticks it holds an old time, and nothing reads it */
	add_field("tick_at", conn->ticking ? conn->pcb.tick_at : 0);
	FIELD(conn, has_recovery);
	FIELD(conn, probed);
	FIELD(conn, probe_shift);
	add_field("ahead", net_ooseq_bytes(conn));
	add_sacks(conn->pcb.rcv_sacks);
	FIELD(conn, n_views);
	FIELD(conn, rx_off);
	if (!conn->orphaned)
		add_field("unread", conn->rx_tail ? net_rxq_bytes(conn) : 0);
	FIELD(conn, srtt_us);
	FIELD(conn, rttvar_us);
	add_field("timer", coro_timer_armed(&conn->timer)
				   ? (uint64_t)conn->timer.expires_ns
				   : 0);
	FIELD(ext, rx_bytes);
	FIELD(ext, tx_acked);
	FIELD(ext, rx_segs);
	FIELD(ext, tx_segs);
	FIELD(ext, retransmits);
	FIELD(ext, rtos);
	FIELD(ext, dup_acks);
	FIELD(ext, out_of_order);
}

void differ_round(void)
{
	if (side < 0 || ++n_rounds >= MOST_ROUNDS)
		return;
	digest = frames_sum;
	frames_sum = 0;
	if (print_at == n_rounds)
		printf("round %llu, with prediction %s:\n",
		       (unsigned long long)n_rounds, side ? "off" : "on");
	add_field("now", (uint64_t)fake_now_ns);
	add_field("connections", net_here()->n_conns);
	add_field("in TIME_WAIT", net_time_waits.n);
	has_segments = false;
	net_for_each_conn(look_for_segments);
	if (!has_segments)
		add_field("memory", net_mem_live_bytes());
	net_for_each_conn(add_conn);
	if (print_at == 0) {
		differ->digest[side][n_rounds] = digest;
		differ->rounds[side] = n_rounds;
	} else if (print_at == n_rounds) {
		fflush(stdout);
		_exit(0);
	}
}

bool differ_lives(void)
{
	return side >= 0;
}

bool differ_predicts(void)
{
	return side != 1;
}

void differ_begin(int which, uint64_t round)
{
	side = which;
	print_at = round;
	n_rounds = 0;
	frames_sum = 0;
}

bool differ_init(void)
{
	differ = mmap(NULL, sizeof(*differ), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return differ != MAP_FAILED;
}

uint64_t differ_first(void)
{
	uint64_t n = differ->rounds[0] > differ->rounds[1] ? differ->rounds[0]
							   : differ->rounds[1];

	for (uint64_t i = 1; i <= n; i++)
		if (differ->digest[0][i] != differ->digest[1][i])
			return i;
	return 0;
}

void differ_forget(void)
{
	for (unsigned i = 0; i < 2; i++) {
		memset(differ->digest[i], 0,
		       (differ->rounds[i] + 1) * sizeof(uint64_t));
		differ->rounds[i] = 0;
	}
}
