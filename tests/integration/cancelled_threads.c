/*
 * Cancels threads that wait in calls on sockets, for test_run_threads.py.
 * Usage: cancelled-threads ADDRESS PORT, to listen at. Prints a line a call.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener, client, server;
static sem_t begun;

static void fail_with(const char *what)
{
	perror(what);
	exit(1);
}

static void *waits_in_accept(void *arg)
{
	sem_post(&begun);
	accept(listener, NULL, NULL);
	return NULL;
}

static void *waits_in_recv(void *arg)
{
	char byte;

	sem_post(&begun);
	recv(client, &byte, 1, 0);
	return NULL;
}

static void *waits_in_poll(void *arg)
{
	struct pollfd fd = {.fd = client, .events = POLLIN};

	sem_post(&begun);
	poll(&fd, 1, -1);
	return NULL;
}

static void *waits_in_epoll(void *arg)
{
	struct epoll_event event = {.events = EPOLLIN};
	int set = epoll_create1(0);

	if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, client, &event) < 0)
		fail_with("epoll");
	sem_post(&begun);
	epoll_wait(set, &event, 1, -1);
	return NULL;
}

static void *asynchronously_in_recv(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	return waits_in_recv(arg);
}

static void *asynchronously_without_waiting(void *arg)
{
	char byte;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	sem_post(&begun);
	for (;;)
		recv(client, &byte, 1, MSG_DONTWAIT);
	return NULL;
}

static void *waits_with_cancellation_disabled(void *arg)
{
	char byte = 0;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	sem_post(&begun);
	if (recv(client, &byte, 1, 0) != 1)
		fail_with("recv");
	return byte == 'd' ? (void *)1 : NULL;
}

static void exchange(int from, int to)
{
	char byte = 0;

	if (send(from, "e", 1, 0) != 1 || recv(to, &byte, 1, 0) != 1 ||
	    byte != 'e')
		fail_with("an exchange");
}

/* A second thread cancels while the first may be the one that runs the stack.
 */
static void cancel(const char *name, void *(*fn)(void *arg))
{
	void *results[2];
	pthread_t threads[2];

	for (int i = 0; i < 2; i++) {
		if (pthread_create(&threads[i], NULL, fn, NULL))
			fail_with("pthread_create");
		sem_wait(&begun);
	}
	for (int i = 0; i < 2; i++)
		pthread_cancel(threads[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], &results[i]);
	exchange(client, server);
	exchange(server, client);
	printf("%s: %s\n", name,
	       results[0] == PTHREAD_CANCELED && results[1] == PTHREAD_CANCELED
		       ? "cancelled"
		       : "returned");
}

static void cancel_asynchronously(void)
{
#if defined(__SANITIZE_ADDRESS__)
	return; /* it takes the stack of such a thread for overrun */
#endif
	cancel("recv, asynchronously", asynchronously_in_recv);
	cancel("any time", asynchronously_without_waiting);
}

static void disabled(void)
{
	pthread_t thread;
	void *result;

	if (pthread_create(&thread, NULL, waits_with_cancellation_disabled,
			   NULL))
		fail_with("pthread_create");
	sem_wait(&begun);
	pthread_cancel(thread);
	if (send(server, "d", 1, 0) != 1)
		fail_with("send");
	pthread_join(thread, &result);
	printf("disabled: %s\n", result == (void *)1 ? "received" : "ended");
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	int one = 1;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &addr.sin_addr) != 1)
		return 2;
	addr.sin_port = htons((unsigned short)atoi(argv[2]));
	sem_init(&begun, 0, 0);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	client = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    listen(listener, 8) < 0 ||
	    connect(client, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    (server = accept(listener, NULL, NULL)) < 0)
		fail_with("connect");
	cancel("accept", waits_in_accept);
	cancel("recv", waits_in_recv);
	cancel("poll", waits_in_poll);
	cancel("epoll_wait", waits_in_epoll);
	cancel_asynchronously();
	disabled();
	exchange(client, server);
	return 0;
}
