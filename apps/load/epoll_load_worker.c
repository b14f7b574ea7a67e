/*
 * A thread of epoll-load: opens its slots, gives them their turns, and handles
 * the events of epoll until the run is over.
 */
#include "apps/load/epoll_load_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "apps/common/sys.h"
#include "apps/load/payload.h"

#define BATCH	       256
#define OPENS_A_TURN   64
#define MAX_CONNECTING 512 /* of all workers; well below the usual backlog */
#define SCAN_NS	       (OPT_NS_PER_S / 10)
#define WAKE_LATE_NS   60000 /* what the kernel may take to wake us */
#define LINE	       64u   /* bytes of a cache line */

/* ---- reports to the conductor ---- */

/* The worker that sees the last slot tried notifies the conductor. */
static void report_settled(struct worker *worker)
{
	uint64_t one = 1, more = worker->stats.settled - worker->settled;
	int64_t before;

	if (more == 0)
		return;
	worker->settled += more;
	before = atomic_fetch_sub(&load.unsettled, (int64_t)more);
	if (before > 0 && before <= (int64_t)more &&
	    write(load.all_settled, &one, sizeof(one)) != sizeof(one))
		abort();
}

/* A worker that is ready but has no core is no less the bottleneck. */
static int64_t busy_ns(const struct worker *worker)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return used.tv_sec * OPT_NS_PER_S + used.tv_nsec + sys_no_core_ns() -
	       worker->waited_ns;
}

static int64_t busy_when_gathered(void *arg)
{
	struct worker *worker = arg;

	return worker->busy_ns;
}

/*
 * Answers soon, whatever there is to do, since the time measured ends when the
 * conductor asks. It waits meanwhile, so that its statistics may be written.
 */
static void answer_if_asked(struct worker *worker)
{
	if (!atomic_load_explicit(&worker->asked, memory_order_acquire))
		return;
	atomic_store(&worker->asked, false);
	report_settled(worker);
	worker->busy_ns = busy_ns(worker);
	load_stats_gather(&load.stats, &worker->stats, sys_now_ns());
	worker->settled = worker->stats.settled;
	sem_post(&worker->gathered);
}

void worker_gather(struct worker *worker)
{
	uint64_t one = 1;

	if (worker->stats.phase == LOAD_DONE)
		return; /* it has ended, or soon will */
	atomic_store(&worker->asked, true);
	if (write(worker->wake, &one, sizeof(one)) != sizeof(one))
		abort();
	while (sem_wait(&worker->gathered))
		; /* a signal came */
}

/* ---- slots of a worker ---- */

static bool may_connect(const struct worker *worker)
{
	_Static_assert(MAX_CONNECTING >= EPOLL_THREADS_MAX, "each connects");
	return worker->connecting < MAX_CONNECTING / load.n_workers;
}

/* Opens each slot for the first time, as the ramp and the handshakes allow. */
static void open_slots(struct worker *worker, int64_t now_ns)
{
	uint32_t may =
		load_part_may_open(&worker->part, &worker->stats, now_ns);
	uint32_t i;

	for (i = 0;
	     i < OPENS_A_TURN && worker->started < may && may_connect(worker);
	     i++) {
		struct slot *slot = &worker->slots[worker->started++];

		if (load.opts.mode == LOAD_CPS) {
			if (is_open_loop())
				load_pace_start(&slot->pace, &worker->stats,
						slot_index(slot), now_ns);
			slot_is_free(slot, now_ns);
		} else {
			slot_open(slot, now_ns, now_ns);
		}
	}
}

static bool is_waiting(const struct slot *slot)
{
	if (load.opts.mode == LOAD_CPS)
		return slot->state == SLOT_CLOSED;
	return slot->state == SLOT_READY;
}

static int64_t turn_due(const struct worker *worker)
{
	return load_part_due(&worker->part, &worker->stats, worker->turn);
}

/*
 * The open loop: visits the slots whose requests have become due. A slot that
 * is busy then looks at its timetable itself when it is done.
 */
static void take_turns(struct worker *worker, int64_t now_ns)
{
	uint32_t visits = 0;

	if (!is_open_loop())
		return;
	for (; turn_due(worker) <= now_ns; worker->turn++) {
		uint32_t at = (uint32_t)(worker->turn % worker->part.count);

		/* One pass is enough, however late it is. */
		if (visits++ == worker->part.count) {
			worker->turn = load_part_turn_at(
				&worker->part, &worker->stats, now_ns);
			break;
		}
		if (at < worker->started && is_waiting(&worker->slots[at]))
			slot_go_on(&worker->slots[at], sys_now_ns());
	}
}

/* Ends, ten times a second, slots that wait too long, and reopens others. */
static void check_slots(struct worker *worker, int64_t now_ns)
{
	int64_t timeout_ns = load.opts.timeout_ns;
	struct slot *slot;
	uint32_t i;

	if (now_ns < worker->scan_ns)
		return;
	worker->scan_ns = now_ns + SCAN_NS;
	for (i = 0; i < worker->started; i++) {
		slot = &worker->slots[i];
		if (slot->state == SLOT_CLOSED) {
			if (now_ns < slot->reopen_ns)
				continue;
			if (load.opts.mode == LOAD_CPS)
				slot_is_free(slot, now_ns);
			else
				slot_open(slot, now_ns, now_ns);
		} else if (slot->state != SLOT_READY &&
			   now_ns - slot->since_ns > timeout_ns) {
			slot_fail(slot, LOAD_TIMEOUT, now_ns);
		}
	}
}

/* Continues bulk slots that only gave way to others. */
static void stream_again(struct worker *worker, int64_t now_ns)
{
	uint32_t i, count = worker->again_count;
	struct slot *slot;

	/* A slot that stops again goes to its own entry, or one before it. */
	worker->again_count = 0;
	for (i = 0; i < count; i++) {
		slot = worker->again[i];
		slot->again = false;
		if (slot->state == SLOT_ASKED)
			slot_stream(slot, now_ns);
		answer_if_asked(worker);
	}
}

static int64_t pick_earlier_ns(int64_t a_ns, int64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

/*
 * Returns how long to wait for events. The last of the time before the open
 * loop's next turn is spent polling, so that it is not late.
 */
static struct timespec time_to_wait(const struct worker *worker, int64_t now_ns)
{
	int64_t until_ns = worker->scan_ns;
	uint32_t may =
		load_part_may_open(&worker->part, &worker->stats, now_ns);
	int64_t wait_ns;

	if (is_open_loop())
		until_ns = pick_earlier_ns(until_ns,
					   turn_due(worker) - WAKE_LATE_NS);
	wait_ns = until_ns - now_ns;
	if (worker->started < worker->part.count)
		wait_ns = pick_earlier_ns(wait_ns, OPT_NS_PER_S / 1000);
	if (wait_ns < 0 || worker->again_count > 0 ||
	    (worker->started < may && may_connect(worker)))
		wait_ns = 0;
	return (struct timespec){.tv_sec = wait_ns / OPT_NS_PER_S,
				 .tv_nsec = wait_ns % OPT_NS_PER_S};
}

/* The next turn is too near to sleep until then. */
static bool is_awake(const struct worker *worker, int64_t now_ns)
{
	return is_open_loop() && turn_due(worker) - now_ns <= WAKE_LATE_NS;
}

/* ---- the thread ---- */

/* Takes events; returns their number. */
static int take_events(struct worker *worker, int64_t now_ns)
{
	struct timespec wait = time_to_wait(worker, now_ns);
	struct epoll_event events[BATCH];
	int count = epoll_pwait2(worker->epoll, events, BATCH, &wait, NULL);
	uint64_t asked;
	int i;

	for (i = 0; i < count; i++) {
		if (events[i].data.ptr != worker)
			slot_event(events[i].data.ptr, events[i].events);
		else if (read(worker->wake, &asked, sizeof(asked)) < 0)
			abort();
		answer_if_asked(worker);
	}
	return count;
}

void *worker_main(void *arg)
{
	struct worker *worker = arg;

	epoll_threads_pin(&load.threads, worker->index);
	/* The open loop wants its waits to end on time. */
	prctl(PR_SET_TIMERSLACK, 1);
	while (worker->stats.phase != LOAD_DONE) {
		int64_t now_ns = sys_now_ns();
		uint64_t turn = worker->turn;
		bool awake;

		open_slots(worker, now_ns);
		take_turns(worker, now_ns);
		check_slots(worker, now_ns);
		stream_again(worker, now_ns);
		report_settled(worker);
		answer_if_asked(worker);
		awake = is_awake(worker, now_ns);
		if (take_events(worker, now_ns) == 0 && awake &&
		    worker->turn == turn)
			worker->waited_ns += sys_now_ns() - now_ns;
	}
	return NULL;
}

static int make_slots(struct worker *worker)
{
	size_t bytes = worker->part.count * sizeof(*worker->slots);
	uint32_t i;

	/* No two workers' slots have a cache line in common. */
	worker->slots = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
	worker->again = calloc(worker->part.count, sizeof(*worker->again));
	if (!worker->slots || !worker->again)
		return -ENOMEM;
	for (i = 0; i < worker->part.count; i++)
		worker->slots[i] = (struct slot){
			.worker = worker,
			.fd = -1,
			.seed = payload_seed(worker->part.first + i),
		};
	return 0;
}

int worker_init(struct worker *worker, uint32_t index)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = worker};
	int err;

	worker->index = index;
	worker->part = load_part_of(&load.opts, index, load.n_workers);
	worker->epoll = worker->wake = -1;
	sem_init(&worker->gathered, 0, 0);
	payload_fill(worker->to_send, LOAD_BUF_SIZE, 0, 0);
	if (load.opts.http_path)
		memcpy(worker->to_send, load.opts.request, load.opts.size);
	err = make_slots(worker);
	if (err < 0)
		return err;
	worker->epoll = epoll_create1(EPOLL_CLOEXEC);
	worker->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->epoll < 0 || worker->wake < 0 ||
	    epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->wake, &event))
		return -errno;
	return 0;
}

void worker_follow(struct worker *worker)
{
	load_stats_follow(&worker->stats, &load.stats);
	/* The run's own statistics have how busy the first worker is. */
	load_stats_set_busy(worker->index ? &worker->stats : &load.stats,
			    busy_when_gathered, worker);
}

void worker_fini(struct worker *worker)
{
	uint32_t i;

	for (i = 0; worker->slots && i < worker->part.count; i++) {
		socket_tls_end(worker->slots[i].tls);
		if (worker->slots[i].fd >= 0)
			close(worker->slots[i].fd);
	}
	if (worker->epoll >= 0)
		close(worker->epoll);
	if (worker->wake >= 0)
		close(worker->wake);
	sem_destroy(&worker->gathered);
	free(worker->again);
	free(worker->slots);
}
