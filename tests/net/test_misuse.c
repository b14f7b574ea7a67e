/*
 * Programming errors that print a sentence and end the process: each runs in a
 * child.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static char said[8192];

/*
 * Runs a connection's handler with its mistake in a child; returns the wait
 * status.
 */
static int in_child(net_handler handler)
{
	int ends[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		struct peer peer;

		for (int i = 0; i < 2; i++)
			signal((int[]){SIGSEGV, SIGABRT}[i], SIG_DFL);
		dup2(ends[1], STDERR_FILENO);
		/*
		 * After the signals' default actions: the stack installs its
		 * own.
		 */
		peer_listen(NULL);
		serve(handler);
		peer_connect(&peer, 1000, 7, 99);
		run_rounds(3);
		_exit(0);
	}
	close(ends[1]);
	while ((n = read(ends[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(ends[0]);
	waitpid(pid, &status, 0);
	return status;
}

static void aborts_saying(net_handler handler, const char *text)
{
	int status = in_child(handler);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
	assert_non_null(strstr(said, text));
}

/* ---- memory on a coroutine's stack ---- */

static void ignore(void *arg)
{
}

static void gives_its_stack_away(struct net_conn *conn, void *arg)
{
	char here[100] = "bytes";

	net_send_owned(conn, here, sizeof(here), ignore, NULL);
}

static void watches_from_its_stack(struct net_conn *conn, void *arg)
{
	struct net_watch watch = {0};

	net_set_watch(conn, &watch);
}

static void *uses_nothing(void *arg)
{
	return NULL;
}

static void spawns_with_its_stack(struct net_conn *conn, void *arg)
{
	char here[100] = "bytes";

	net_spawn(stack, "other", uses_nothing, here);
}

static void test_memory_on_a_shared_stack_is_refused(void **state)
{
	aborts_saying(gives_its_stack_away,
		      "net_send_owned: the buffer lies on a shared stack");
	aborts_saying(watches_from_its_stack,
		      "net_set_watch: the watch lies on a shared stack");
	aborts_saying(spawns_with_its_stack,
		      "coro_spawn: the argument lies on a shared stack");
}

/* ---- calls from another thread ---- */

/* Objects of the shard's thread for another thread. */
static struct net_conn *the_conn;
static struct net_stack *the_stack;
static struct net_listener *the_listener;
static unsigned which;

static void release(void *arg)
{
}

static void *call_from_thread(void *arg)
{
	static char buf[16];
	static struct iovec iov = {buf, sizeof(buf)};
	static struct net_view view;
	static struct net_poll_item item;
	static struct net_conn_stats stats;
	static struct net_watch watch;
	struct net_listener *l;
	struct net_conn *c;

	stack = the_stack;
	listener = the_listener;
	switch (which) {
	case 0:
		return net_recv(the_conn, buf, 1), NULL;
	case 1:
		return net_recvv(the_conn, &iov, 1), NULL;
	case 2:
		return net_recv_full(the_conn, buf, 1), NULL;
	case 3:
		return net_recv_until(the_conn, buf, 9, "\n", 1), NULL;
	case 4:
		return net_recv_view(the_conn, &view), NULL;
	case 5:
		return net_view_release(the_conn, &view), NULL;
	case 6:
		return net_send(the_conn, buf, 1), NULL;
	case 7:
		return net_send_all(the_conn, buf, 1), NULL;
	case 8:
		return net_sendv(the_conn, &iov, 1), NULL;
	case 9:
		return net_sendv_all(the_conn, &iov, 1), NULL;
	case 10:
		return net_send_owned(the_conn, buf, 1, release, NULL), NULL;
	case 11:
		return net_send_view(the_conn, &view), NULL;
	case 12:
		return net_writable(the_conn), NULL;
	case 13:
		return net_shutdown(the_conn, NET_SHUT_WR), NULL;
	case 14:
		return net_close(the_conn), NULL;
	case 15:
		return net_close_wait(the_conn, CORO_FOREVER), NULL;
	case 16:
		return net_abort(the_conn), NULL;
	case 17:
		return net_cancel(the_conn), NULL;
	case 18:
		return net_poll(&item, 1, CORO_FOREVER), NULL;
	case 19:
		return net_set_read_deadline(the_conn, 0), NULL;
	case 20:
		return net_set_write_deadline(the_conn, 0), NULL;
	case 21:
		return net_set_nodelay(the_conn, true), NULL;
	case 22:
		return net_set_keepalive(the_conn, 1, 1, 1), NULL;
	case 23:
		return net_set_watch(the_conn, &watch), NULL;
	case 24:
		return net_conn_stats(the_conn, &stats), NULL;
	case 25:
		return net_dial(stack, &net_addr_any(7), NULL, &c), NULL;
	case 26:
		return net_listen(stack, &net_addr_any(8), 0, &l), NULL;
	case 27:
		return net_accept(listener, &c), NULL;
	case 28:
		return net_listener_serve(listener, NULL, NULL), NULL;
	case 29:
		return net_listener_close(listener), NULL;
	case 30:
		return net_stack_run(stack), NULL;
	case 31:
		return net_stack_close(stack), NULL;
	case 32:
		return net_link_wait(stack, 1), NULL;
	}
	return NULL;
}

static const char *const names[] = {
	"net_recv",
	"net_recvv",
	"net_recv_full",
	"net_recv_until",
	"net_recv_view",
	"net_view_release",
	"net_send",
	"net_send_all",
	"net_sendv",
	"net_sendv_all",
	"net_send_owned",
	"net_send_view",
	"net_writable",
	"net_shutdown",
	"net_close",
	"net_close_wait",
	"net_abort",
	"net_cancel",
	"net_poll",
	"net_set_read_deadline",
	"net_set_write_deadline",
	"net_set_nodelay",
	"net_set_keepalive",
	"net_set_watch",
	"net_conn_stats",
	"net_dial",
	"net_listen",
	"net_accept",
	"net_listener_serve",
	"net_listener_close",
	"net_stack_run",
	"net_stack_close",
	"net_link_wait",
};

static void calls_elsewhere(struct net_conn *conn, void *arg)
{
	pthread_t thread;

	the_conn = conn;
	the_stack = stack;
	the_listener = listener;
	pthread_create(&thread, NULL, call_from_thread, NULL);
	pthread_join(thread, NULL);
}

static void test_calls_from_another_thread_are_named(void **state)
{
	char text[128];

	for (which = 0; which < sizeof(names) / sizeof(*names); which++) {
		snprintf(text, sizeof(text),
			 "coronet: %s() was called from a thread that isn't "
			 "its shard's",
			 names[which]);
		aborts_saying(calls_elsewhere, text);
	}
}

static void *log_from_thread(void *arg)
{
	net_log("from elsewhere");
	net_stack_stop(arg);
	return NULL;
}

static void does_what_it_may(struct net_conn *conn, void *arg)
{
	pthread_t thread;

	pthread_create(&thread, NULL, log_from_thread, stack);
	pthread_join(thread, NULL);
	_exit(net_stack_stopping(stack) ? 3 : 4);
}

static void test_other_threads_may_log_and_stop(void **state)
{
	int status = in_child(does_what_it_may);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 3);
}

/* ---- crashes ---- */

static void crashes(struct net_conn *conn, void *arg)
{
	__asm__ volatile("movl $1, 16" : : : "memory");
	net_send(conn, "x", 1);
}

static void *crashes_alone(void *arg)
{
	__asm__ volatile("movl $1, 16" : : : "memory");
	return NULL;
}

static void spawns_a_crash(struct net_conn *conn, void *arg)
{
	net_spawn(stack, "loner", crashes_alone, NULL);
	coro_yield();
	coro_yield();
}

static void test_a_crash_names_handler_and_peer(void **state)
{
	int status = in_child(crashes);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	assert_non_null(strstr(said, "coronet: SIGSEGV (address 0x10) in "
				     "coroutine 'conn' (handler "));
	assert_non_null(strstr(said, ", peer 10.0.0.2:1000), at "));
	in_child(spawns_a_crash);
	assert_non_null(strstr(said, "in coroutine 'loner', at "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_on_a_shared_stack_is_refused),
		cmocka_unit_test(test_calls_from_another_thread_are_named),
		cmocka_unit_test(test_other_threads_may_log_and_stop),
		cmocka_unit_test(test_a_crash_names_handler_and_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
