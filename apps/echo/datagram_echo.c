/*
 * epoll-echo --udp: echoes datagrams through the kernel's sockets, by batches
 * (recvmmsg, sendmmsg), each thread with a socket of its own.
 */
#include "apps/echo/kernel_echo.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH	  64
#define BUF_BYTES 9216 /* longer datagrams are cut */

struct worker {
	int fd; /* owned */
	int drain_event;
	struct mmsghdr msgs[BATCH];
	struct iovec iovs[BATCH];
	struct sockaddr_storage peers[BATCH];
	char bufs[BATCH][BUF_BYTES];
};

static void prepare_msgs(struct worker *worker)
{
	for (int i = 0; i < BATCH; i++) {
		worker->iovs[i] = (struct iovec){worker->bufs[i], BUF_BYTES};
		worker->msgs[i].msg_hdr = (struct msghdr){
			.msg_name = &worker->peers[i],
			.msg_namelen = sizeof(worker->peers[i]),
			.msg_iov = &worker->iovs[i],
			.msg_iovlen = 1,
		};
	}
}

/* Sends a batch back; a datagram that cannot be sent is left out. */
static void answer_batch(struct worker *worker, int n)
{
	int done = 0, sent;

	for (int i = 0; i < n; i++)
		worker->iovs[i].iov_len = worker->msgs[i].msg_len;
	while (done < n) {
		sent = sendmmsg(worker->fd, worker->msgs + done,
				(unsigned)(n - done), 0);
		if (sent < 0 && errno == EAGAIN) {
			struct pollfd out = {worker->fd, POLLOUT, 0};

			poll(&out, 1, -1);
			continue;
		}
		done += sent > 0 ? sent : 1;
	}
}

static void serve_datagrams(void *arg)
{
	struct worker *worker = arg;
	struct pollfd fds[] = {{worker->fd, POLLIN, 0},
			       {worker->drain_event, POLLIN, 0}};
	int n;

	prepare_msgs(worker);
	while (!fds[1].revents) {
		n = recvmmsg(worker->fd, worker->msgs, BATCH, MSG_DONTWAIT,
			     NULL);
		if (n > 0) {
			answer_batch(worker, n);
			prepare_msgs(worker);
		}
		if (n < BATCH)
			poll(fds, 2, n > 0 ? 0 : -1);
	}
}

static void worker_close(void *arg)
{
	struct worker *worker = arg;

	close(worker->fd);
	free(worker);
}

static int worker_open(int fd, int drain_event, void **out)
{
	struct worker *worker = calloc(1, sizeof(*worker));

	if (!worker)
		return -ENOMEM;
	worker->fd = fd;
	worker->drain_event = drain_event;
	*out = worker;
	return 0;
}

const struct kernel_echo datagram_echo = {
	.open = worker_open,
	.serve = serve_datagrams,
	.close = worker_close,
};
