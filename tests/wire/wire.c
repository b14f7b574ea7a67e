/*
 * wire: forwards frames between two links, with the loss, delay, jitter,
 * reordering, duplication, corruption, rate and outage asked for.
 *
 * A frame stays in the mbuf it arrived in while it is under way, and is
 * copied into one of the other port's when it leaves: each pool then holds
 * all of its frames again when its port closes.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "apps/common/opts.h"
#include "dpdk_glue/glue.h"
#include "tests/wire/line.h"
#include "tests/wire/model.h"
#include "tests/wire/opts.h"
#include "tests/wire/report.h"

#define SPIN_ROUNDS 256	  /* empty rounds before adaptive polling sleeps */
#define NAP_NS	    20000 /* with the wake-up, below 50 us */
#define PORT_FRAMES 4096  /* in a port's rings and caches */
#define FRAME_BYTES 2560  /* of memory a frame, all included */
#define MEM_MIB	    96 /* what DPDK takes besides frames, and loses to gaps */

/* What comes in at one end. */
struct direction {
	struct glue_port *from, *to;
	struct wire_path *path;
	struct wire_line *line;
	struct wire_counts counts;
};

static struct wire {
	struct wire_opts opts;
	struct glue_port *ports[WIRE_ENDS];
	struct direction directions[WIRE_ENDS];
	unsigned empty_rounds;
} wire;

static volatile sig_atomic_t stop;

static void on_signal(int signo)
{
	if (stop)
		_exit(1);
	stop = 1;
}

/* ---- frames ---- */

static unsigned frame_len(const struct glue_frame *frame)
{
	unsigned len = 0;

	for (; frame; frame = frame->next)
		len += frame->seg_len;
	return len;
}

/* Both have the same length, if not the same segments. */
static void copy_bytes(struct glue_frame *to, const struct glue_frame *from)
{
	unsigned to_off = 0, from_off = 0;

	while (to && from) {
		unsigned to_room = to->seg_len - to_off;
		unsigned n = from->seg_len - from_off;

		if (n > to_room)
			n = to_room;
		memcpy(to->data + to_off, from->data + from_off, n);
		to_off += n;
		from_off += n;
		if (to_off == to->seg_len) {
			to = to->next;
			to_off = 0;
		}
		if (from_off == from->seg_len) {
			from = from->next;
			from_off = 0;
		}
	}
}

static struct glue_frame *copy_frame(struct glue_port *port,
				     const struct glue_frame *frame)
{
	struct glue_frame *copy = glue_tx_alloc(port, frame_len(frame));

	if (copy)
		copy_bytes(copy, frame);
	return copy;
}

static void flip_bit(struct glue_frame *frame, uint32_t bit)
{
	unsigned byte = bit / 8;

	for (; frame && byte >= frame->seg_len; frame = frame->next)
		byte -= frame->seg_len;
	if (frame)
		frame->data[byte] ^= (uint8_t)(1 << bit % 8);
}

/* ---- one direction ---- */

/* Takes the frame. */
static void hold(struct direction *dir, struct glue_frame *frame,
		 const struct wire_fate *fate)
{
	if (!frame) {
		dir->counts.no_frame++;
		return;
	}
	if (fate->flip != WIRE_INTACT)
		flip_bit(frame, fate->flip);
	if (wire_line_push(dir->line, fate->leaves_ns, frame) < 0) {
		dir->counts.overflowed++;
		glue_frame_free(frame);
	}
}

/* The frame itself is the first copy to leave, if any does. */
static void enter(struct direction *dir, struct glue_frame *frame,
		  int64_t now_ns)
{
	struct wire_fate fates[WIRE_COPIES];
	unsigned n =
		wire_path_offer(dir->path, now_ns, frame_len(frame), fates);
	struct glue_frame *copies[WIRE_COPIES] = {frame};

	if (n == 0) {
		glue_frame_free(frame);
		return;
	}
	/* Copied before any bit is flipped. */
	for (unsigned i = 1; i < n; i++)
		copies[i] = copy_frame(dir->from, frame);
	for (unsigned i = 0; i < n; i++)
		hold(dir, copies[i], &fates[i]);
}

static void leave(struct direction *dir, struct glue_frame *frame)
{
	struct glue_frame *copy = copy_frame(dir->to, frame);

	if (copy) {
		dir->counts.out_frames++;
		dir->counts.out_bytes += frame_len(frame);
		glue_tx(dir->to, copy);
	} else {
		dir->counts.no_frame++;
	}
	glue_frame_free(frame);
}

/* One burst in, at most twice as many out: a duplicate of each. */
static unsigned forward(struct direction *dir, int64_t now_ns)
{
	struct glue_frame *frames[GLUE_BURST], *frame;
	unsigned n = glue_rx_raw(dir->from, frames, GLUE_BURST);
	unsigned left = 0;

	for (unsigned i = 0; i < n; i++)
		enter(dir, frames[i], now_ns);
	while (left < WIRE_COPIES * GLUE_BURST &&
	       (frame = wire_line_pop(dir->line, now_ns))) {
		leave(dir, frame);
		left++;
	}
	glue_tx_flush(dir->to);
	return n + left;
}

/* ---- the loop ---- */

static int64_t next_ns(void)
{
	int64_t a = wire_line_next_ns(wire.directions[WIRE_A].line);
	int64_t b = wire_line_next_ns(wire.directions[WIRE_B].line);

	return a < b ? a : b;
}

static void idle(unsigned work, int64_t now_ns)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};

	if (work) {
		wire.empty_rounds = 0;
		return;
	}
	if (wire.empty_rounds < SPIN_ROUNDS) {
		wire.empty_rounds++;
		__builtin_ia32_pause();
		return;
	}
	if (wire.opts.adaptive && next_ns() > now_ns + NAP_NS)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
}

/* Returns how long it ran. */
static int64_t run(void)
{
	const int64_t start_ns = glue_now_ns();
	int64_t now_ns = 0;

	while (!stop) {
		unsigned work = 0;

		now_ns = glue_now_ns() - start_ns;
		if (wire.opts.run_ns && now_ns >= wire.opts.run_ns)
			break;
		for (int end = 0; end < WIRE_ENDS; end++)
			work += forward(&wire.directions[end], now_ns);
		idle(work, now_ns);
	}
	return now_ns;
}

/* ---- opening and closing ---- */

static int open_ports(char *err, size_t err_len)
{
	const struct wire_opts *opts = &wire.opts;
	const unsigned n_frames = opts->hold_pkts + PORT_FRAMES;
	const struct glue_eal_conf eal = {
		.links = opts->links,
		.n_links = opts->n_links,
		.lcore = opts->lcore,
		.huge_off = opts->huge_off,
		.mem_mib =
			MEM_MIB + (unsigned)((uint64_t)n_frames * FRAME_BYTES *
						     WIRE_ENDS >>
					     20),
	};
	const struct glue_port_conf port = {.mtu = opts->mtu,
					    .n_frames = n_frames};
	int rc = glue_eal_start(&eal, err, err_len);

	for (unsigned end = 0; rc == 0 && end < WIRE_ENDS; end++)
		rc = glue_port_open(end, &port, &wire.ports[end], err, err_len);
	return rc;
}

static int open_direction(enum wire_end from)
{
	struct direction *dir = &wire.directions[from];
	int rc;

	dir->from = wire.ports[from];
	dir->to = wire.ports[WIRE_B - from];
	rc = wire_path_open(&wire.opts.conf[from], wire.opts.seed, from,
			    wire.opts.hold_pkts, &dir->path);
	if (rc == 0)
		rc = wire_line_open(wire.opts.hold_pkts, &dir->line);
	return rc;
}

static int open_all(char *err, size_t err_len)
{
	int rc = open_ports(err, err_len);

	for (int end = 0; rc == 0 && end < WIRE_ENDS; end++) {
		rc = open_direction((enum wire_end)end);
		if (rc < 0)
			snprintf(err, err_len, "--hold %u: no memory",
				 wire.opts.hold_pkts);
	}
	return rc;
}

static void drop_held(struct direction *dir)
{
	struct glue_frame *frame;

	while ((frame = wire_line_pop(dir->line, INT64_MAX))) {
		glue_frame_free(frame);
		dir->counts.under_way++;
	}
}

/* Takes what open_all() left behind, however far it came. */
static void close_all(void)
{
	for (int end = 0; end < WIRE_ENDS; end++) {
		struct direction *dir = &wire.directions[end];

		if (dir->line) {
			drop_held(dir);
			wire_line_close(dir->line);
		}
		if (dir->path)
			wire_path_close(dir->path);
	}
	for (int end = 0; end < WIRE_ENDS; end++)
		if (wire.ports[end])
			glue_port_close(wire.ports[end]);
	glue_eal_stop();
}

static const struct wire_counts *finish_counts(struct wire_counts *counts)
{
	for (int end = 0; end < WIRE_ENDS; end++) {
		struct direction *dir = &wire.directions[end];
		struct glue_port_stats from, to;

		drop_held(dir);
		glue_port_stats(dir->from, &from);
		glue_port_stats(dir->to, &to);
		dir->counts.model = *wire_path_stats(dir->path);
		dir->counts.missed = from.rx_missed;
		dir->counts.refused = to.tx_dropped;
		counts[end] = dir->counts;
	}
	return counts;
}

static int serve(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct wire_counts counts[WIRE_ENDS];
	int64_t ran_ns;
	int rc;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	prctl(PR_SET_TIMERSLACK, 1UL);
	printf("forwarding %s <-> %s\n", wire.opts.link_texts[WIRE_A],
	       wire.opts.link_texts[WIRE_B]);
	fflush(stdout);
	ran_ns = run();
	rc = wire_report(&wire.opts, ran_ns, finish_counts(counts));
	if (rc < 0)
		fprintf(stderr, "wire: --json: %s\n", strerror(-rc));
	return rc;
}

int main(int argc, char **argv)
{
	char err[512] = "";
	int rc;

	wire_opts_parse(argc, argv, &wire.opts);
	rc = open_all(err, sizeof(err));
	if (rc < 0)
		fprintf(stderr, "wire: %s\n", err);
	else
		rc = serve();
	close_all();
	if (wire.opts.json)
		fclose(wire.opts.json);
	return rc == 0 ? 0 : rc == -EINVAL ? OPTS_EXIT_USAGE : 1;
}
