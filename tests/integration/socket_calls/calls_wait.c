/* poll(), select() and epoll. */

#include "calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

static bool is_in_flight(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	return info.tcpi_unacked > 0;
}

static void fill_buffer(int fd)
{
	static const char bytes[64 << 10];
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	fcntl(fd, F_SETFL, O_NONBLOCK);
	/* Buffers grow while the peer's acknowledgments come. */
	do
		while (write(fd, bytes, sizeof(bytes)) > 0)
			;
	while (poll(&p, 1, 500) == 1 || is_in_flight(fd));
	while (write(fd, bytes, 1) > 0)
		;
	errno = 0;
}

/* ---- poll ---- */

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
	(void)number;
	handled++;
}

/* More than any process may open; sanitizers read all of them first. */
static void poll_too_many(int fd)
{
	const nfds_t many = 1u << 21;
	struct pollfd *p = mmap(NULL, many * sizeof(*p), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return;
	p->fd = fd;
	show("poll: too many", poll(p, many, 0));
	munmap(p, many * sizeof(*p));
}

static void polling(void)
{
	int fd = talk("read:1 say:abc read:1 eof end"), pipes[2];
	struct pollfd p[4] = {{.fd = fd, .events = POLLIN},
			      {.fd = -1, .events = POLLIN},
			      {.fd = 4000, .events = POLLIN}};
	struct timespec negative = {.tv_nsec = -1};

	show("poll: nothing yet", poll(p, 1, 0));
	show_poll("poll: nothing asked", poll(p, 0, 0), p[0].revents);
	p[0].events = POLLOUT | POLLWRNORM | POLLIN;
	show_poll("poll: may write", poll(p, 1, -1), p[0].revents);
	p[0].events = POLLIN;
	show("poll: -1 is passed over", poll(p, 2, 0));
	show("poll: not open", poll(p, 3, 0));
	show_poll("poll: not open: events", 1, p[2].revents);
	poll_too_many(fd);
	show("ppoll: negative time", ppoll(p, 1, &negative, NULL));
	send(fd, "x", 1, 0);
	show_poll("poll: bytes", poll(p, 1, -1), p[0].revents);
	p[0].events = POLLIN | POLLRDNORM | POLLPRI | POLLRDBAND;
	show_poll("poll: bytes, of all", poll(p, 1, -1), p[0].revents);
	p[0].events = 0;
	show_poll("poll: bytes, nobody asked", poll(p, 1, 0), p[0].revents);
	pipe(pipes);
	p[0].events = POLLIN;
	p[1] = (struct pollfd){.fd = pipes[0], .events = POLLIN};
	show("poll: one of two", poll(p, 2, -1));
	write(pipes[1], "x", 1);
	show("poll: both", poll(p, 2, -1));
	p[2] = p[0];
	show("poll: one twice", poll(p, 3, -1));
	send(fd, "x", 1, 0);
	p[0].events = POLLRDHUP;
	show_poll("poll: end", poll(p, 1, -1), p[0].revents);
	close(pipes[0]);
	close(pipes[1]);
	close(fd);
}

static void full_buffers(void)
{
	int fd = talk("read:1 hold");
	struct timeval wait = {.tv_usec = 30000};
	struct linger linger = {.l_onoff = 1};
	struct pollfd p = {.fd = fd, .events = POLLOUT | POLLIN};

	fill_buffer(fd);
	show("buffer full: poll", poll(&p, 1, 0));
	show("buffer full: send", send(fd, "x", 1, 0));
	fcntl(fd, F_SETFL, 0);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	show("buffer full: SO_SNDTIMEO", send(fd, "x", 1, 0));
	show("buffer full: MSG_DONTWAIT", send(fd, "x", 1, MSG_DONTWAIT));
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(fd);
}

static void check_masks(void)
{
	int fd = talk("end");
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct timespec second = {.tv_sec = 1}, none = {0};
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t blocked, empty;
	fd_set set;

	sigaction(SIGUSR1, &action, NULL);
	sigemptyset(&empty);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	raise(SIGUSR1);
	show("mask: poll", poll(&p, 1, 0));
	show("mask: handled", handled);
	show("ppoll: mask kept", ppoll(&p, 1, &none, &blocked));
	show("ppoll: handled", handled);
	show("ppoll: mask lifted", ppoll(&p, 1, &second, &empty));
	show("ppoll: handled now", handled);
	raise(SIGUSR1);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	show("pselect: mask lifted",
	     pselect(fd + 1, &set, NULL, NULL, &second, &empty));
	show("pselect: handled", handled);
	raise(SIGUSR1);
	{
		int epfd = epoll_create1(0);
		struct epoll_event event = {.events = EPOLLIN};

		epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event);
		show("epoll_pwait: mask lifted",
		     epoll_pwait(epfd, &event, 1, 1000, &empty));
		show("epoll_pwait: handled", handled);
		close(epfd);
	}
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
	signal(SIGUSR1, SIG_DFL);
	close(fd);
}

static void selecting(void)
{
	int fd = talk("read:1 say:abc end");
	struct timeval none = {0}, negative = {.tv_sec = -1};
	fd_set in, out, except;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	out = except = in;
	show("select: may write", select(fd + 1, &in, &out, &except, NULL));
	show_text("select: sets", "%d %d %d", FD_ISSET(fd, &in) != 0,
		  FD_ISSET(fd, &out) != 0, FD_ISSET(fd, &except) != 0);
	show("select: negative count", select(-1, NULL, NULL, NULL, &none));
	show("select: negative time", select(0, NULL, NULL, NULL, &negative));
	FD_SET(fd, &in);
	show("select: nothing yet", select(fd + 1, &in, NULL, NULL, &none));
	show("select: cleared", FD_ISSET(fd, &in) != 0);
	FD_SET(fd, &in);
	show("select: not counted", select(fd, &in, NULL, NULL, &none));
	send(fd, "x", 1, 0);
	FD_SET(fd, &in);
	FD_SET(fd, &out);
	show("select: both",
	     (wait_for(fd, POLLIN), select(fd + 1, &in, &out, NULL, NULL)));
	close(fd);
	FD_ZERO(&in);
	FD_SET(fd, &in);
	show("select: closed", select(fd + 1, &in, NULL, NULL, &none));
}

/*
 * A descriptor that has hung up is ready only in the set of readers: the call
 * waits until its time is over, of which nothing is left then.
 */
static void select_hung_up(const char *label, int fd, bool writes, bool excepts)
{
	int other = talk("end");
	char of_sets[60];
	struct timeval wait = {.tv_usec = 30000};
	fd_set in, out, except;

	FD_ZERO(&in);
	FD_SET(other, &in);
	FD_ZERO(&out);
	FD_ZERO(&except);
	if (writes)
		FD_SET(fd, &out);
	if (excepts)
		FD_SET(fd, &except);
	show(label,
	     select((fd > other ? fd : other) + 1, &in, &out, &except, &wait));
	snprintf(of_sets, sizeof(of_sets), "%s: sets", label);
	show_text(of_sets, "%d %d %d, time left %d", FD_ISSET(other, &in) != 0,
		  FD_ISSET(fd, &out) != 0, FD_ISSET(fd, &except) != 0,
		  wait.tv_sec || wait.tv_usec);
	close(other);
}

static void hung_up(void)
{
	int fd = talk("close"), ends[2];

	wait_for(fd, POLLRDHUP);
	shutdown(fd, SHUT_WR);
	select_hung_up("select: closed socket, except", fd, false, true);
	close(fd);
	if (pipe(ends) < 0)
		show("select: pipe", -1);
	close(ends[1]);
	select_hung_up("select: closed pipe, except", ends[0], false, true);
	select_hung_up("select: closed pipe, out", ends[0], true, false);
	close(ends[0]);
}

void calls_of_poll(void)
{
	polling();
	full_buffers();
	check_masks();
	selecting();
	hung_up();
}

/* ---- epoll ---- */

static int control(int epfd, int op, int fd, unsigned events, unsigned data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};

	return epoll_ctl(epfd, op, fd, &event);
}

static void show_events(const char *label, int epfd, int max, int ms)
{
	struct epoll_event got[8] = {0};
	int n = epoll_wait(epfd, got, max, ms);
	unsigned seen = 0, events = 0;

	for (int i = 0; i < n; i++) { /* in any order */
		seen |= 1u << got[i].data.u64;
		events |= got[i].events;
	}
	if (n < 0)
		show(label, n);
	else
		show_text(label, "%d of %#x, %#x", n, seen, events);
}

static void check_sets(void)
{
	int epfd = epoll_create1(EPOLL_CLOEXEC), fd = talk("end"), other;
	struct epoll_event event;
	struct stat stat;
	int file = memfd_create("file", 0);

	show("epoll: unknown flag", epoll_create1(1));
	show("epoll: size 0", epoll_create(0));
	show("epoll: close-on-exec", fcntl(epfd, F_GETFD));
	show("epoll: add", control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	show("epoll: add again", control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	show("epoll: change", control(epfd, EPOLL_CTL_MOD, fd, EPOLLOUT, 1));
	show_events("epoll: may write", epfd, 8, -1);
	show("epoll: delete", epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL));
	show("epoll: delete again", epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL));
	show("epoll: change none",
	     control(epfd, EPOLL_CTL_MOD, fd, EPOLLOUT, 1));
	show("epoll: itself", control(epfd, EPOLL_CTL_ADD, epfd, EPOLLIN, 1));
	show("epoll: unknown operation", control(epfd, 9, fd, EPOLLIN, 1));
	show("epoll: not open", control(epfd, EPOLL_CTL_ADD, 4000, EPOLLIN, 1));
	show("epoll: a socket as the set",
	     control(fd, EPOLL_CTL_ADD, epfd, EPOLLIN, 1));
	fstat(file, &stat);
	show("epoll: maxevents of 0", epoll_wait(epfd, &event, 0, 0));
	show("epoll: wait on a socket", epoll_wait(fd, &event, 1, 0));
	show("epoll: wait on none", epoll_wait(4000, &event, 1, 0));
	show("epoll: no event to add",
	     epoll_ctl(epfd, EPOLL_CTL_ADD, fd, nowhere));
	control(epfd, EPOLL_CTL_ADD, fd, EPOLLOUT, 1);
	show("epoll: no room", epoll_wait(epfd, nowhere, 1, 0));
	show("epoll: EPOLLEXCLUSIVE, change",
	     control(epfd, EPOLL_CTL_MOD, fd, EPOLLEXCLUSIVE, 1));
	show("epoll: EPOLLEXCLUSIVE and once",
	     control(epfd, EPOLL_CTL_ADD, fd, EPOLLEXCLUSIVE | EPOLLONESHOT,
		     1));
	other = tcp();
	show("epoll: EPOLLEXCLUSIVE",
	     control(epfd, EPOLL_CTL_ADD, other, EPOLLEXCLUSIVE | EPOLLIN, 2));
	show("epoll: EPOLLEXCLUSIVE, then change",
	     control(epfd, EPOLL_CTL_MOD, other, EPOLLIN, 2));
	show_events("epoll: a new socket", epfd, 8, -1);
	close(other);
	show_events("epoll: which is closed", epfd, 8, -1);
	close(fd);
	show_events("epoll: both closed", epfd, 8, 0);
	close(file);
	close(epfd);
}

static void triggers(void)
{
	int epfd = epoll_create1(0);
	int fd = talk("read:1 say:abc read:1 say:def read:1 eof end");
	char text[8];

	control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
	show_events("level: nothing yet", epfd, 8, 0);
	send(fd, "x", 1, 0);
	show_events("level: bytes", epfd, 8, -1);
	show_events("level: still", epfd, 8, 0);
	control(epfd, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 1);
	show_events("edge: after the change", epfd, 8, 0);
	show_events("edge: no more", epfd, 8, 0);
	recv(fd, text, 1, 0);
	show_events("edge: after a read", epfd, 8, 0);
	send(fd, "x", 1, 0);
	show_events("edge: more bytes", epfd, 8, -1);
	show_events("edge: no more again", epfd, 8, 0);
	control(epfd, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 1);
	show_events("once: bytes", epfd, 8, 0);
	show_events("once: no more", epfd, 8, 0);
	control(epfd, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 1);
	show_events("once: set again", epfd, 8, 0);
	control(epfd, EPOLL_CTL_MOD, fd, EPOLLRDHUP, 1);
	show_events("end: not yet", epfd, 8, 0);
	send(fd, "x", 1, 0);
	show_events("end: EPOLLRDHUP", epfd, 8, -1);
	control(epfd, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT, 1);
	show_events("end: EPOLLIN and EPOLLOUT", epfd, 8, 0);
	shutdown(fd, SHUT_WR);
	control(epfd, EPOLL_CTL_MOD, fd, EPOLLHUP, 1);
	show_events("end: both directions", epfd, 8, -1);
	close(fd);
	show_events("end: closed", epfd, 8, 0);
	close(epfd);
}

static void kernel_descriptors(void)
{
	int epfd = epoll_create1(0), fd = talk("read:1 say:abc end");
	int event = eventfd(0, 0), copy, inner = epoll_create1(0);
	unsigned seen = 0;
	struct epoll_event got;
	struct pollfd p;

	control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
	control(epfd, EPOLL_CTL_ADD, event, EPOLLIN, 2);
	eventfd_write(event, 1);
	send(fd, "x", 1, 0);
	wait_for(fd, POLLIN);
	show_events("both kinds", epfd, 8, -1);
	for (int i = 0; i < 6; i++)
		if (epoll_wait(epfd, &got, 1, 0) == 1)
			seen |= (unsigned)got.data.u64;
	show("both kinds: in turns", seen);
	close(event);
	show_events("both kinds: one closed", epfd, 8, -1);
	copy = dup(fd);
	show("copy: add", control(epfd, EPOLL_CTL_ADD, copy, EPOLLIN, 3));
	show_events("copy: both", epfd, 8, -1);
	close(copy);
	close(fd);
	show_events("copy: closed", epfd, 8, 0);

	fd = talk("read:1 say:abc end");
	control(inner, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
	show("nested: add", control(epfd, EPOLL_CTL_ADD, inner, EPOLLIN, 4));
	show("nested: in a circle",
	     control(inner, EPOLL_CTL_ADD, epfd, EPOLLIN, 5));
	p = (struct pollfd){.fd = inner, .events = POLLIN};
	show("nested: nothing yet", poll(&p, 1, 0));
	send(fd, "x", 1, 0);
	wait_for(fd, POLLIN);
	show_poll("nested: poll", poll(&p, 1, 3000), p.revents);
	show_events("nested: epoll", epfd, 8, 3000);
	show_events("nested: inner", inner, 8, 0);
	close(inner);
	show_events("nested: closed", epfd, 8, 0);
	close(fd);
	close(epfd);
}

/* A set with a socket of the stack and each kind of the kernel's events. */
static void kernel_events(void)
{
	struct itimerspec once = {.it_value = {0, 1}};
	int epfd = epoll_create1(0), fd = talk("read:1 say:abc end");
	int timer = timerfd_create(CLOCK_MONOTONIC, 0), signals, notes;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, 0);
	notes = inotify_init1(0);
	control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
	control(epfd, EPOLL_CTL_ADD, timer, EPOLLIN, 2);
	control(epfd, EPOLL_CTL_ADD, signals, EPOLLIN, 3);
	control(epfd, EPOLL_CTL_ADD, notes, EPOLLIN, 4);
	show_events("events: nothing yet", epfd, 8, 0);
	timerfd_settime(timer, 0, &once, NULL);
	show_events("events: timerfd", epfd, 8, -1);
	close(timer);
	raise(SIGUSR2);
	show_events("events: signalfd", epfd, 8, -1);
	close(signals);
	signal(SIGUSR2, SIG_IGN); /* nobody has taken it */
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	signal(SIGUSR2, SIG_DFL);
	inotify_add_watch(notes, "/proc/self/comm", IN_CLOSE_NOWRITE);
	close(open("/proc/self/comm", O_RDONLY));
	show_events("events: inotify", epfd, 8, -1);
	close(notes);
	send(fd, "x", 1, 0);
	show_events("events: bytes", epfd, 8, -1);
	close(fd);
	show_events("events: all closed", epfd, 8, 0);
	close(epfd);
}

void calls_of_epoll(void)
{
	check_sets();
	triggers();
	kernel_descriptors();
	kernel_events();
}

/* ---- small stacks ---- */

static void *ask_and_poll(void *arg)
{
	int fd = talk("read:1 say:abc end");
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char text[3];
	long n = send(fd, "x", 1, 0);

	(void)arg;
	n += recv(fd, text, 3, MSG_WAITALL);
	n += poll(&p, 1, 30);
	close(fd);
	return (void *)n;
}

/* A thread that waits runs the stack on the least memory that is allowed. */
void calls_on_small_stacks(void)
{
	pthread_t threads[4];
	pthread_attr_t attr;
	void *result;
	long sum = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], &attr, ask_and_poll, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		sum += (long)result;
	}
	show("thread: smallest stacks", sum);
}
