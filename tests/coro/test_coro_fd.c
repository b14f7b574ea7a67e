/*
 * Waiting for the kernel's file descriptors: wake-ups, and waits whose
 * descriptor is closed, whose coroutine is destroyed, or that time out.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <coronet/coro_io.h>

#include "fd_wait.h"
#include "peer.h"

static void test_readable_descriptor_wakes_its_waiter(void **state)
{
	struct wait *w;
	int fds[2];

	open_pipe(fds);
	w = wait_start(*state, 0, fds[0], POLLIN);
	look_for_events(*state);
	assert_false(w->done);
	assert_int_equal(coro_fd_waiting(*state), 1);
	write_byte(fds[1]);
	look_for_events(*state);
	wait_end(w);
	assert_int_equal(w->got, POLLIN);
	assert_int_equal(coro_fd_waiting(*state), 0);
	close_pipe(fds);
}

static void test_descriptor_is_waited_for_again(void **state)
{
	int fds[2];
	char c;

	open_pipe(fds);
	for (int i = 0; i < 100; i++) {
		struct wait *w = wait_start(*state, 0, fds[0], POLLIN);

		look_for_events(*state);
		assert_false(w->done);
		write_byte(fds[1]);
		look_for_events(*state);
		wait_end(w);
		assert_int_equal(read(fds[0], &c, 1), 1);
	}
	close_pipe(fds);
}

/* While the thread is busy the kernel is asked at intervals, not each round. */
static void test_kernel_is_asked_at_intervals(void **state)
{
	struct wait *w;
	int fds[2];

	open_pipe(fds);
	w = wait_start(*state, 0, fds[0], POLLIN);
	look_for_events(*state);
	write_byte(fds[1]);
	for (int i = 0; i < 100; i++)
		coro_sched_round(*state);
	assert_false(w->done);
	look_for_events(*state);
	wait_end(w);
	close_pipe(fds);
}

static void test_each_waiter_gets_its_own_events(void **state)
{
	struct wait *in, *in2, *out;
	int sv[2];
	char full[4096] = {0};

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv), 0);
	while (write(sv[0], full, sizeof(full)) > 0)
		;
	in = wait_start(*state, 0, sv[0], POLLIN);
	out = wait_start(*state, 1, sv[0], POLLOUT);
	in2 = wait_start(*state, 2, sv[0], POLLIN | POLLRDHUP);
	look_for_events(*state);
	assert_false(in->done || out->done || in2->done);
	while (read(sv[1], full, sizeof(full)) > 0)
		;
	look_for_events(*state);
	assert_false(in->done || in2->done);
	wait_end(out);
	assert_int_equal(out->got, POLLOUT);
	write_byte(sv[1]);
	look_for_events(*state);
	wait_end(in);
	wait_end(in2);
	assert_int_equal(in->got, POLLIN);
	assert_int_equal(in2->got, POLLIN);
	close_pipe(sv);
}

static void test_hang_up_wakes_every_waiter(void **state)
{
	struct wait *in, *out;
	int fds[2];

	open_pipe(fds);
	in = wait_start(*state, 0, fds[0], POLLIN);
	out = wait_start(*state, 1, fds[0], POLLPRI);
	look_for_events(*state);
	close(fds[1]);
	look_for_events(*state);
	wait_end(in);
	wait_end(out);
	assert_int_equal(in->got, POLLHUP);
	assert_int_equal(out->got, POLLHUP);
	close(fds[0]);
}

static void test_deadline_ends_one_wait_alone(void **state)
{
	struct wait *w, *longer;
	int fds[2];

	open_pipe(fds);
	w = wait_start(*state, 0, fds[0], POLLIN);
	w->deadline = fake_now + 10 * MS;
	longer = wait_start(*state, 1, fds[0], POLLIN);
	look_for_events(*state);
	pass_ns(*state, 11 * MS);
	wait_end(w);
	assert_int_equal(w->got, -ETIMEDOUT);
	assert_false(longer->done);
	assert_int_equal(coro_fd_waiting(*state), 1);
	write_byte(fds[1]);
	look_for_events(*state);
	wait_end(longer);
	close_pipe(fds);
}

/* The armed event comes after the waiter has timed out. */
static void test_event_after_a_timeout_wakes_nobody(void **state)
{
	struct wait *w;
	int fds[2];

	open_pipe(fds);
	w = wait_start(*state, 0, fds[0], POLLIN);
	w->deadline = fake_now + MS;
	look_for_events(*state);
	pass_ns(*state, 2 * MS);
	wait_end(w);
	write_byte(fds[1]);
	w = wait_start(*state, 0, fds[0], POLLPRI);
	look_for_events(*state);
	assert_false(w->done);
	coro_cancel(w->co);
	look_for_events(*state);
	wait_end(w);
	assert_int_equal(w->got, -ECANCELED);
	close_pipe(fds);
}

static void test_destroyed_wait_is_forgotten(void **state)
{
	struct wait *w;
	int fds[2];

	open_pipe(fds);
	w = wait_start(*state, 0, fds[0], POLLIN);
	look_for_events(*state);
	assert_int_equal(coro_destroy(w->co), 0);
	assert_int_equal(coro_fd_waiting(*state), 0);
	write_byte(fds[1]);
	look_for_events(*state);
	close_pipe(fds);
}

static void test_past_deadline_asks_once(void **state)
{
	struct wait *w;
	int fds[2];

	open_pipe(fds);
	for (int ready = 0; ready < 2; ready++) {
		w = wait_start(*state, 0, fds[0], POLLIN);
		w->deadline = 0;
		run_idle(*state);
		wait_end(w);
		assert_int_equal(w->got, ready ? POLLIN : -ETIMEDOUT);
		write_byte(fds[1]);
	}
	close_pipe(fds);
}

static void test_regular_files_are_always_ready(void **state)
{
	const char *path[] = {"/proc/self/exe", "/"};

	for (int i = 0; i < 2; i++) {
		int fd = open(path[i], O_RDONLY);
		struct wait *w = wait_start(*state, 0, fd, POLLIN);

		assert_true(fd >= 0);
		run_idle(*state);
		wait_end(w);
		assert_int_equal(w->got, POLLIN);
		close(fd);
	}
}

static void test_wrong_descriptors_and_events_are_refused(void **state)
{
	static const struct {
		int fd, events, err;
	} cases[] = {{-1, POLLIN, -EBADF},
		     {1 << 30, POLLIN, -EBADF},
		     {999, POLLIN, -EBADF},
		     {0, 0, -EINVAL},
		     {0, POLLIN | POLLHUP, -EINVAL}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct wait *w =
			wait_start(*state, 0, cases[i].fd, cases[i].events);

		run_idle(*state);
		wait_end(w);
		assert_int_equal(w->got, cases[i].err);
	}
	assert_int_equal(coro_fd_wait(0, POLLIN, CORO_FOREVER), -EPERM);
	assert_int_equal(coro_fd_waiting(*state), 0);
}

/* The kernel drops a closed descriptor silently. */
static void test_reused_descriptor_number_is_waited_for(void **state)
{
	struct wait *old, *w;
	int fds[2], other[2], number;

	open_pipe(fds);
	number = fds[0];
	old = wait_start(*state, 0, number, POLLIN);
	look_for_events(*state);
	close_pipe(fds);
	open_pipe(other);
	assert_int_equal(other[0], number);
	w = wait_start(*state, 1, number, POLLIN);
	look_for_events(*state);
	assert_false(w->done);
	write_byte(other[1]);
	look_for_events(*state);
	wait_end(w);
	assert_int_equal(w->got, POLLIN);
	wait_end(old); /* as its description says */
	close_pipe(other);
}

static void test_more_ready_descriptors_than_one_poll_returns(void **state)
{
	int fds[200][2];

	for (int i = 0; i < 200; i++) {
		open_pipe(fds[i]);
		wait_start(*state, i, fds[i][0], POLLIN);
	}
	look_for_events(*state);
	for (int i = 0; i < 200; i++)
		write_byte(fds[i][1]);
	fake_now += CORO_FD_LOOK_NS;
	coro_sched_advance(*state, fake_now);
	for (int i = 0; i < 10; i++) /* no time passes between these */
		coro_sched_round(*state);
	for (int i = 0; i < 200; i++) {
		wait_end(&waits[i]);
		close_pipe(fds[i]);
	}
}

static void test_cancel_all_ends_every_wait(void **state)
{
	int fds[2];

	open_pipe(fds);
	coro_fd_cancel_all(*state); /* before any */
	for (int i = 0; i < 3; i++)
		wait_start(*state, i, fds[i / 2], i / 2 ? POLLPRI : POLLIN);
	look_for_events(*state);
	coro_fd_cancel_all(*state);
	run_idle(*state);
	for (int i = 0; i < 3; i++) {
		wait_end(&waits[i]);
		assert_int_equal(waits[i].got, -ECANCELED);
	}
	assert_int_equal(coro_fd_waiting(*state), 0);
	close_pipe(fds);
}

/* ---- threads that sleep ---- */

static int speaks_to;

static void *speaks(void *arg)
{
	usleep(20000);
	write_byte(speaks_to);
	return NULL;
}

static void test_sleeping_thread_is_woken(void **state)
{
	pthread_t th;
	struct wait *w;
	int fds[2];

	open_pipe(fds);
	speaks_to = fds[1];
	w = wait_start(*state, 0, fds[0], POLLIN);
	assert_int_equal(pthread_create(&th, NULL, speaks, NULL), 0);
	assert_int_equal(coro_sched_run(*state), 0); /* no deadlock */
	pthread_join(th, NULL);
	wait_end(w);
	close_pipe(fds);
}

static void test_watched_descriptor_ends_the_sleep(void **state)
{
	int fds[2];

	open_pipe(fds);
	assert_int_equal(coro_sched_wake_on(*state, fds[0], true), 0);
	assert_int_equal(coro_sched_wake_on(*state, fds[0], true), -EEXIST);
	write_byte(fds[1]);
	/* Hangs for good unless it ends. */
	assert_int_equal(coro_sched_wait(*state, CORO_FOREVER), 0);
	wait_start(*state, 0, fds[0], POLLIN);
	look_for_events(*state);
	wait_end(&waits[0]);
	assert_int_equal(coro_sched_wake_on(*state, fds[0], false), 0);
	assert_int_equal(coro_sched_wake_on(*state, fds[0], false), -ENOENT);
	assert_int_equal(coro_sched_wake_on(*state, -1, true), -EBADF);
	close_pipe(fds);
}

/* ---- watches ---- */

static int seen;

static void on_event(struct coro_fd_watch *watch, int events)
{
	seen += events;
}

static void test_watch_is_called_once(void **state)
{
	struct coro_fd_watch watch = {.fn = on_event}, other = watch;
	struct wait *w;
	int fds[2];

	seen = 0;
	open_pipe(fds);
	assert_int_equal(coro_fd_watch(fds[0], POLLIN, &watch), 0);
	assert_int_equal(coro_fd_watch(fds[0], POLLIN, &watch), -EBUSY);
	assert_int_equal(coro_fd_watch(fds[0], POLLIN, &other), 0);
	assert_int_equal(coro_fd_watch(-1, POLLIN, &(struct coro_fd_watch){0}),
			 -EBADF);
	assert_int_equal(coro_fd_watch(fds[0], 0, &(struct coro_fd_watch){0}),
			 -EINVAL);
	w = wait_start(*state, 0, fds[0], POLLIN);
	look_for_events(*state);
	assert_int_equal(coro_fd_waiting(*state), 3);
	coro_fd_unwatch(&other);
	coro_fd_unwatch(&other);
	assert_int_equal(coro_fd_waiting(*state), 2);
	write_byte(fds[1]);
	look_for_events(*state);
	look_for_events(*state);
	wait_end(w);
	assert_int_equal(seen, POLLIN);
	assert_int_equal(coro_fd_waiting(*state), 0);
	close_pipe(fds);
}

static void test_watch_of_another_event_stays(void **state)
{
	struct coro_fd_watch in = {.fn = on_event}, hup = in;
	int fds[2];

	seen = 0;
	open_pipe(fds);
	assert_int_equal(coro_fd_watch(fds[0], POLLIN, &in), 0);
	assert_int_equal(coro_fd_watch(fds[0], POLLPRI, &hup), 0);
	write_byte(fds[1]);
	look_for_events(*state);
	assert_int_equal(seen, POLLIN);
	assert_int_equal(coro_fd_waiting(*state), 1);
	close(fds[1]);
	look_for_events(*state);
	assert_int_equal(seen, POLLIN + POLLHUP);
	close(fds[0]);
}

/* Closing the scheduler removes the watch; removing it again is harmless. */
static struct coro_fd_watch forgotten = {.fn = on_event};

static void test_scheduler_closes_under_a_watch(void **state)
{
	static int fds[2];

	open_pipe(fds);
	assert_int_equal(coro_fd_watch(fds[0], POLLIN, &forgotten), 0);
	close_pipe(fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_readable_descriptor_wakes_its_waiter),
		BOTH(test_descriptor_is_waited_for_again),
		BOTH(test_kernel_is_asked_at_intervals),
		BOTH(test_each_waiter_gets_its_own_events),
		BOTH(test_hang_up_wakes_every_waiter),
		BOTH(test_deadline_ends_one_wait_alone),
		BOTH(test_event_after_a_timeout_wakes_nobody),
		BOTH(test_destroyed_wait_is_forgotten),
		BOTH(test_past_deadline_asks_once),
		BOTH(test_regular_files_are_always_ready),
		BOTH(test_wrong_descriptors_and_events_are_refused),
		BOTH(test_reused_descriptor_number_is_waited_for),
		BOTH(test_more_ready_descriptors_than_one_poll_returns),
		BOTH(test_cancel_all_ends_every_wait),
		BOTH(test_sleeping_thread_is_woken),
		BOTH(test_watched_descriptor_ends_the_sleep),
		BOTH(test_watch_is_called_once),
		BOTH(test_watch_of_another_event_stays),
		BOTH(test_scheduler_closes_under_a_watch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
