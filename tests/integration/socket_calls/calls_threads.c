/* Calls on sockets that other threads wait for. */
#include "calls.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

static void *read_one(void *arg)
{
	char byte;
	long n = recv(*(int *)arg, &byte, 1, 0);

	return (void *)(n < 0 ? -(long)errno : n);
}

static void *accept_one(void *arg)
{
	long n = accept(*(int *)arg, NULL, NULL);

	return (void *)(n < 0 ? -(long)errno : 0);
}

static long result_of(pthread_t thread)
{
	void *result;

	pthread_join(thread, &result);
	return (long)result;
}

/* Starts a thread, and gives it a moment to block, which cannot be observed. */
static pthread_t start_thread(void *(*run)(void *), int *fd)
{
	pthread_t thread;

	pthread_create(&thread, NULL, run, fd);
	usleep(50000);
	return thread;
}

static void shared_streams(void)
{
	unsigned port;
	int fd = talk("read:1 say:ab end"), listens = listener(&port), asked;
	pthread_t first = start_thread(read_one, &fd),
		  second = start_thread(read_one, &fd);

	show("thread: write while two read", send(fd, "x", 1, 0));
	show("thread: read", result_of(first));
	show("thread: read, second", result_of(second));
	first = start_thread(read_one, &fd);
	show("thread: shutdown while one reads", shutdown(fd, SHUT_RD));
	show("thread: shutdown: read", result_of(first));
	close(fd);
	first = start_thread(accept_one, &listens);
	asked = ask_to_dial(port, "end");
	show("thread: accept", result_of(first));
	first = start_thread(accept_one, &listens);
	show("thread: shutdown while one accepts", shutdown(listens, SHUT_RD));
	show("thread: shutdown: accept", result_of(first));
	close(asked);
	close(listens);
}

/* ---- connects that another thread ends ---- */

static int dial_nobody(int fd)
{
	struct sockaddr_in addr = peer_addr(7);

	/* Nobody has this address: there is no answer to ARP. */
	addr.sin_addr.s_addr = htonl(ntohl(addr.sin_addr.s_addr) + 76);
	return connect(fd, (struct sockaddr *)&addr, sizeof(addr));
}

static void *connect_one(void *arg)
{
	return (void *)(dial_nobody(*(int *)arg) < 0 ? -(long)errno : 0);
}

/* The first calls may come before the thread's connect(). */
static int shutdown_when_it_dials(int fd, int how)
{
	int rc;

	while ((rc = shutdown(fd, how)) < 0 && errno == ENOTCONN)
		usleep(1000);
	return rc;
}

static const char *of(int how, const char *text)
{
	static char label[80];

	snprintf(label, sizeof(label), "%s, %d", text, how);
	return label;
}

static void shut_connecting(int how)
{
	short all = POLLIN | POLLOUT | POLLRDHUP;
	int fd = tcp();
	pthread_t thread = start_thread(connect_one, &fd);
	char byte;

	show(of(how, "connecting: shutdown"), shutdown_when_it_dials(fd, how));
	show(of(how, "connecting: connect"), result_of(thread));
	show_poll(of(how, "connecting: poll"), 1, wait_for(fd, all));
	show(of(how, "connecting: SO_ERROR"), so_error(fd));
	show(of(how, "connecting: shutdown again"), shutdown(fd, how));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	dial_nobody(fd);
	show(of(how, "connecting, not waiting: shutdown"), shutdown(fd, how));
	show_poll(of(how, "connecting, not waiting: poll"), 1,
		  wait_for(fd, all));
	show(of(how, "connecting, not waiting: SO_ERROR"), so_error(fd));
	show_poll(of(how, "connecting, not waiting: poll again"), 1,
		  wait_for(fd, all));
	show(of(how, "connecting, not waiting: connect again"),
	     dial_nobody(fd));
	show(of(how, "connecting, not waiting: shutdown again"),
	     shutdown(fd, how));
	show(of(how, "connecting, not waiting: recv"), recv(fd, &byte, 1, 0));
	show(of(how, "connecting, not waiting: recv again"),
	     recv(fd, &byte, 1, 0));
	close(fd);
}

/* A thread that reads too late gets the error of the connection: once more. */
static void disconnected(void)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	long result = -ECONNRESET;
	int fd = -1, rc = 0;

	for (int i = 0; i < 100 && result == -ECONNRESET; i++) {
		pthread_t thread;

		close(fd);
		fd = talk("end");
		thread = start_thread(read_one, &fd);
		rc = connect(fd, &none, sizeof(none));
		result = result_of(thread);
	}
	show("another disconnects: connect", rc);
	show("another disconnects: while it reads", result);
	show_poll("another disconnects: poll", 1,
		  wait_for(fd, POLLIN | POLLOUT));
	show("another disconnects: SO_ERROR", so_error(fd));
	close(fd);
}

/* ---- ends that others wait for ---- */

static void *wait_for_events(void *arg)
{
	struct epoll_event event = {0};
	int n = epoll_wait(*(int *)arg, &event, 1, -1);

	return (void *)(long)(n == 1 ? (long)event.events : -1);
}

static void *poll_one(void *arg)
{
	return (void *)(long)wait_for(*(int *)arg, POLLIN);
}

static void watched(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	int epfd = epoll_create1(0), fd = talk("end");
	pthread_t thread;

	epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event);
	thread = start_thread(wait_for_events, &epfd);
	show("watched: shutdown", shutdown(fd, SHUT_RDWR));
	show("watched: epoll_wait", result_of(thread));
	close(fd);
	close(epfd);
	fd = talk("end");
	thread = start_thread(poll_one, &fd);
	show("watched: close", close(fd));
	show("watched: poll", result_of(thread));
}

/* The first descriptor of the kernel joins a set while a thread waits. */
static void added(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	int epfd = epoll_create1(0), fd = talk("end"), ends[2];
	pthread_t thread;

	epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event);
	if (pipe(ends) < 0 || write(ends[1], "x", 1) < 0)
		show("added: pipe", -1);
	thread = start_thread(wait_for_events, &epfd);
	show("added: epoll_ctl",
	     epoll_ctl(epfd, EPOLL_CTL_ADD, ends[0], &event));
	show("added: epoll_wait", result_of(thread));
	close(ends[0]);
	close(ends[1]);
	close(fd);
	close(epfd);
}

void calls_in_threads(void)
{
	shared_streams();
	for (int how = SHUT_RD; how <= SHUT_RDWR; how++)
		shut_connecting(how);
	disconnected();
	watched();
	added();
}

/* ---- the end of main() ---- */

/* Runs on when main() has ended; the program ends when it returns. */
static void *outlive_main(void *arg)
{
	pthread_t *first = arg;
	char text[4] = "";
	int fd;

	show("main ended: join", pthread_join(*first, NULL));
	fd = talk("read:1 say:abc end");
	show("main ended: send", send(fd, "x", 1, 0));
	show("main ended: recv", recv(fd, text, 3, MSG_WAITALL));
	show_text("main ended: text", "%s", text);
	return NULL;
}

void calls_after_main(void)
{
	static pthread_t first;
	pthread_t thread;

	first = pthread_self();
	pthread_create(&thread, NULL, outlive_main, &first);
	pthread_exit(NULL);
}
