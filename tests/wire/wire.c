/*
 * wire: forwards frames between two links, with configured loss, delay, jitter,
 * reordering, duplication, corruption, rate, path MTU and outage. Lines on
 * stdin change them at run time. Several links at one end share the path.
 *
 * A frame stays in the mbuf it arrived in while it is under way, and is
 * copied into one of the other port's when it leaves: each pool then holds
 * all of its frames again when its port closes.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "apps/common/opts.h"
#include "dpdk_glue/glue.h"
#include "tests/wire/control.h"
#include "tests/wire/hosts.h"
#include "tests/wire/line.h"
#include "tests/wire/mark.h"
#include "tests/wire/model.h"
#include "tests/wire/opts.h"
#include "tests/wire/report.h"
#include "tests/wire/too_big.h"

#define SPIN_ROUNDS 256	    /* empty rounds before adaptive polling sleeps */
#define NAP_NS	    20000   /* with the wake-up, below 50 us */
#define PORT_FRAMES 4096    /* in a port's rings and caches */
#define FRAME_BYTES 2560    /* of memory a frame, all included */
#define MEM_MIB	    96	    /* DPDK's use besides frames, gaps included */
#define CONTROL_NS  1000000 /* between two reads of stdin */

/* The links at one end. */
struct end {
	struct glue_port *ports[WIRE_LINKS];
	struct wire_hosts hosts;
};

/* The frames that enter at one end. */
struct direction {
	struct end *from, *to;
	struct wire_path *path;
	struct wire_line *line;
	struct wire_counts counts;
};

static struct wire {
	struct wire_opts opts;
	struct end ends[WIRE_ENDS];
	struct direction directions[WIRE_ENDS];
	struct wire_control control;
	int64_t control_ns; /* when stdin is read next */
	struct wire_times times;
	unsigned empty_rounds;
} wire;

static_assert(WIRE_HOSTS >= WIRE_LINKS, "a host on each link");

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
static void hold_frame(struct direction *dir, struct glue_frame *frame,
		       const struct wire_fate *fate)
{
	if (!frame) {
		dir->counts.no_frame++;
		return;
	}
	if (fate->mark)
		dir->counts.marked += wire_mark(frame->data, frame->seg_len);
	if (fate->flip != WIRE_INTACT)
		flip_bit(frame, fate->flip);
	if (wire_line_push(dir->line, fate->leaves_ns, frame) < 0) {
		dir->counts.overflowed++;
		glue_frame_free(frame);
	}
}

static void enter_direction(struct direction *dir, struct glue_port *port,
			    struct glue_frame *frame, int64_t now_ns);

/*
 * Sends the ICMP error in the other direction like any frame there. Borrows the
 * frame.
 */
static void send_too_big(struct direction *dir, struct glue_port *port,
			 const struct glue_frame *frame, int64_t now_ns)
{
	struct direction *back =
		&wire.directions[WIRE_B - (dir->from - wire.ends)];
	unsigned mtu = wire_path_conf(dir->path)->mtu;
	uint8_t bytes[WIRE_TOO_BIG_MAX];
	unsigned len = wire_too_big(frame->data, frame->seg_len, mtu, bytes);
	struct glue_frame *answer = len ? glue_tx_alloc(port, len) : NULL;

	if (!answer)
		return;
	copy_bytes(answer, &(struct glue_frame){.data = bytes,
						.seg_len = (uint16_t)len});
	dir->counts.reported++;
	enter_direction(back, port, answer, now_ns);
}

/*
 * The frame itself is the first copy to leave, if any does. The others are the
 * port's as well.
 */
static void enter_direction(struct direction *dir, struct glue_port *port,
			    struct glue_frame *frame, int64_t now_ns)
{
	const uint64_t too_big = wire_path_stats(dir->path)->too_big;
	struct wire_fate fates[WIRE_COPIES];
	unsigned n =
		wire_path_offer(dir->path, now_ns, frame_len(frame), fates);
	struct glue_frame *copies[WIRE_COPIES] = {frame};

	if (n == 0) {
		if (wire_path_stats(dir->path)->too_big != too_big &&
		    wire_path_conf(dir->path)->send_too_big)
			send_too_big(dir, port, frame, now_ns);
		glue_frame_free(frame);
		return;
	}
	/* Copied before any bit is flipped. */
	for (unsigned i = 1; i < n; i++)
		copies[i] = copy_frame(port, frame);
	for (unsigned i = 0; i < n; i++)
		hold_frame(dir, copies[i], &fates[i]);
}

static void leave_direction(struct direction *dir, struct glue_frame *frame)
{
	const struct end *to = dir->to;
	unsigned reach =
		wire_hosts_reach(&to->hosts, frame->data, frame->seg_len);
	bool left = false;

	for (unsigned i = 0; i < to->hosts.n; i++) {
		struct glue_frame *copy =
			reach & 1u << i ? copy_frame(to->ports[i], frame)
					: NULL;

		if (copy)
			glue_tx(to->ports[i], copy);
		left |= copy != NULL;
	}
	if (left) {
		dir->counts.out_frames++;
		dir->counts.out_bytes += frame_len(frame);
	} else {
		dir->counts.no_frame++;
	}
	glue_frame_free(frame);
}

static unsigned take_in(struct direction *dir, unsigned link, int64_t now_ns)
{
	struct glue_port *port = dir->from->ports[link];
	struct glue_frame *frames[GLUE_BURST];
	unsigned n = glue_rx_raw(port, frames, GLUE_BURST);

	for (unsigned i = 0; i < n; i++) {
		wire_hosts_learn(&dir->from->hosts, link, frames[i]->data,
				 frames[i]->seg_len);
		enter_direction(dir, port, frames[i], now_ns);
	}
	return n;
}

static void count_late(struct wire_counts *counts, int64_t late_ns)
{
	counts->late += late_ns > WIRE_LATE_NS;
	if ((uint64_t)late_ns > counts->late_max)
		counts->late_max = (uint64_t)late_ns;
}

/* A burst in from each link, at most twice as many out: a duplicate of each. */
static unsigned forward(struct direction *dir, int64_t now_ns)
{
	const unsigned links = dir->from->hosts.n;
	struct glue_frame *frame;
	unsigned n = 0, left = 0;

	for (unsigned i = 0; i < links; i++)
		n += take_in(dir, i, now_ns);
	while (left < links * WIRE_COPIES * GLUE_BURST) {
		int64_t leaves_ns = wire_line_next_ns(dir->line);

		frame = wire_line_pop(dir->line, now_ns);
		if (!frame)
			break;
		count_late(&dir->counts, now_ns - leaves_ns);
		leave_direction(dir, frame);
		left++;
	}
	for (unsigned i = 0; i < dir->to->hosts.n; i++)
		glue_tx_flush(dir->to->ports[i]);
	return n + left;
}

/* ---- changes while it runs ---- */

static const struct wire_counts *
sum_counts(struct wire_counts counts[WIRE_ENDS])
{
	for (int end = 0; end < WIRE_ENDS; end++) {
		struct direction *dir = &wire.directions[end];
		struct wire_counts *sum = &counts[end];

		*sum = dir->counts;
		sum->under_way += wire_line_count(dir->line);
		sum->model = *wire_path_stats(dir->path);
		for (unsigned i = 0; i < dir->from->hosts.n; i++) {
			struct glue_port_stats stats;

			glue_port_stats(dir->from->ports[i], &stats);
			sum->missed += stats.rx_missed;
		}
		for (unsigned i = 0; i < dir->to->hosts.n; i++) {
			struct glue_port_stats stats;

			glue_port_stats(dir->to->ports[i], &stats);
			sum->refused += stats.tx_dropped;
		}
	}
	return counts;
}

static void obey_line(char *line)
{
	struct wire_counts counts[WIRE_ENDS];
	struct wire_conf conf[WIRE_ENDS];
	struct wire_request asked;
	char err[WIRE_CONTROL_LINE + 256], said[WIRE_CONTROL_LINE];

	for (int end = 0; end < WIRE_ENDS; end++)
		conf[end] = *wire_path_conf(wire.directions[end].path);
	memcpy(said, line, sizeof(said));
	if (wire_control_parse(line, conf, &asked, err, sizeof(err)) < 0) {
		fprintf(stderr, "wire: %s\n", err);
		return;
	}
	if (asked.counters) {
		wire_report_now(&wire.opts, &wire.times, sum_counts(counts));
		return;
	}
	for (int end = 0; end < WIRE_ENDS; end++)
		if (asked.changes[end])
			wire_path_change(wire.directions[end].path, &conf[end]);
	printf("changed: %s\n", said);
	fflush(stdout);
}

static void look_at_control(int64_t now_ns)
{
	char line[WIRE_CONTROL_LINE];

	if (now_ns < wire.control_ns)
		return;
	wire.control_ns = now_ns + CONTROL_NS;
	while (wire_control_next(&wire.control, line))
		obey_line(line);
}

/* ---- the loop ---- */

static int64_t next_ns(void)
{
	int64_t a = wire_line_next_ns(wire.directions[WIRE_A].line);
	int64_t b = wire_line_next_ns(wire.directions[WIRE_B].line);

	return a < b ? a : b;
}

static void idle_between(unsigned work, int64_t now_ns)
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

static void run_wire(void)
{
	const int64_t start_ns = glue_now_ns();
	unsigned work = 0;

	while (!stop) {
		int64_t now_ns = glue_now_ns() - start_ns;

		if (work)
			wire.times.busy_ns += now_ns - wire.times.ran_ns;
		wire.times.ran_ns = now_ns;
		if (wire.opts.run_ns && now_ns >= wire.opts.run_ns)
			break;
		if (wire.opts.control)
			look_at_control(now_ns);
		work = 0;
		for (int end = 0; end < WIRE_ENDS; end++)
			work += forward(&wire.directions[end], now_ns);
		idle_between(work, now_ns);
	}
}

/* ---- opening and closing ---- */

static int open_port(unsigned link, const struct glue_port_conf *conf,
		     char *err, size_t err_len)
{
	struct end *end = &wire.ends[wire.opts.end_of[link]];
	int rc = glue_port_open(link, conf, &end->ports[end->hosts.n], err,
				err_len);

	if (rc == 0)
		end->hosts.n++;
	return rc;
}

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
						     opts->n_links >>
					     20),
	};
	const struct glue_port_conf port = {.mtu = opts->mtu,
					    .n_frames = n_frames};
	int rc = glue_eal_start(&eal, err, err_len);

	for (unsigned i = 0; rc == 0 && i < opts->n_links; i++)
		rc = open_port(i, &port, err, err_len);
	return rc;
}

static int open_direction(enum wire_end from)
{
	struct direction *dir = &wire.directions[from];
	int rc;

	dir->from = &wire.ends[from];
	dir->to = &wire.ends[WIRE_B - from];
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

/* Closes what open_all() opened, even if it failed halfway. */
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
		for (unsigned i = 0; i < wire.ends[end].hosts.n; i++)
			glue_port_close(wire.ends[end].ports[i]);
	glue_eal_stop();
}

static int serve_forever(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct wire_counts counts[WIRE_ENDS];
	int rc;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	prctl(PR_SET_TIMERSLACK, 1UL);
	printf("forwarding %s <-> %s\n", wire.opts.link_texts[WIRE_A],
	       wire.opts.link_texts[WIRE_B]);
	fflush(stdout);
	wire_control_init(&wire.control, STDIN_FILENO);
	run_wire();
	for (int end = 0; end < WIRE_ENDS; end++)
		drop_held(&wire.directions[end]);
	rc = wire_report(&wire.opts, &wire.times, sum_counts(counts));
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
		rc = serve_forever();
	close_all();
	if (wire.opts.json)
		fclose(wire.opts.json);
	return rc == 0 ? 0 : rc == -EINVAL ? OPT_EXIT_USAGE : 1;
}
