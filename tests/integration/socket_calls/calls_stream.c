/* Data of connections, their ends, and unmapped buffers. */
#include "calls.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <linux/sockios.h>

/* ---- reading ---- */

static void await_bytes(int fd, int bytes)
{
	char room[1000];
	ssize_t n = 0;

	while (n < bytes && n >= 0)
		n = recv(fd, room, (size_t)bytes, MSG_PEEK | MSG_WAITALL);
	errno = 0;
}

static void reading(void)
{
	int fd = talk("say:0123456789abcdef read:1 say:rest eof end"), n = -1;
	char text[100] = "", a[3] = "", b[4] = "";
	struct iovec parts[2] = {{a, 2}, {b, 3}};
	struct msghdr msg = {.msg_iov = parts,
			     .msg_iovlen = 2,
			     .msg_name = text,
			     .msg_namelen = sizeof(text)};
	socklen_t len = sizeof(text);

	await_bytes(fd, 16);
	show("FIONREAD", ioctl(fd, FIONREAD, &n));
	show("FIONREAD: bytes", n);
	show("SIOCATMARK", ioctl(fd, SIOCATMARK, &n));
	show("recv of 0", recv(fd, text, 0, 0));
	show("read of 0", read(fd, text, 0));
	show("peek", recv(fd, text, 3, MSG_PEEK));
	show_text("peek: text", "%.3s", text);
	show("peek over iovecs", recvmsg(fd, &msg, MSG_PEEK));
	show_text("peek over iovecs: text", "%s %s", a, b);
	show("MSG_TRUNC", recv(fd, NULL, 2, MSG_TRUNC));
	show("recvmsg", recvmsg(fd, &msg, 0));
	show_text("recvmsg: text", "%s %s", a, b);
	show("recvmsg: msg_namelen", msg.msg_namelen);
	show("recvmsg: msg_flags", msg.msg_flags);
	show("recvfrom", recvfrom(fd, text, 1, 0, (void *)text, &len));
	show("recvfrom: length", len);
	show("readv", readv(fd, parts, 2));
	show_text("readv: text", "%s %s", a, b);
	show("recv: the rest", recv(fd, text, sizeof(text), 0));
	show("recv: not waiting", recv(fd, text, 1, MSG_DONTWAIT));
	show("MSG_ERRQUEUE", recv(fd, text, 1, MSG_ERRQUEUE));
	show("MSG_OOB", recv(fd, text, 1, MSG_OOB));
	send(fd, "x", 1, 0);
	show("MSG_WAITALL to the end", recv(fd, text, 10, MSG_WAITALL));
	show("end", recv(fd, text, 10, 0));
	show("end again", recv(fd, text, 10, MSG_WAITALL));
	show("end, peek", recv(fd, text, 10, MSG_PEEK));
	show("end, not waiting", recv(fd, text, 10, MSG_DONTWAIT));
	show_poll("end: poll", 1,
		  wait_for(fd, POLLIN | POLLOUT | POLLRDHUP | POLLRDNORM));
	show("end: send", send(fd, "x", 1, 0));
	close(fd);
}

/* The end comes before the call that waits for more bytes than there are. */
static void short_of_all(void)
{
	int fd = talk("say:rest eof end");
	char text[20];

	wait_for(fd, POLLRDHUP);
	show("MSG_WAITALL at the end", recv(fd, text, 10, MSG_WAITALL));
	show("MSG_WAITALL at the end: then", recv(fd, text, 10, MSG_WAITALL));
	set_int(fd, SOL_SOCKET, SO_RCVLOWAT, 6);
	show("SO_RCVLOWAT at the end", recv(fd, text, 10, 0));
	close(fd);
	fd = talk("say:rest eof end");
	wait_for(fd, POLLRDHUP);
	set_int(fd, SOL_SOCKET, SO_RCVLOWAT, 6);
	show("SO_RCVLOWAT above the rest", recv(fd, text, 10, 0));
	close(fd);
}

static void discarding(void)
{
	int fd = talk("count:2000000 say:rest eof end");
	char text[20];

	show("MSG_TRUNC and MSG_WAITALL",
	     recv(fd, NULL, 2000000, MSG_TRUNC | MSG_WAITALL));
	show("MSG_TRUNC and MSG_WAITALL: then", recv(fd, text, 4, MSG_WAITALL));
	show_text("MSG_TRUNC and MSG_WAITALL: text", "%.4s", text);
	close(fd);
}

static void low_water(void)
{
	int fd = talk("say:abc read:1 say:defg end");
	char text[20];
	struct pollfd p = {.fd = fd, .events = POLLIN};

	await_bytes(fd, 3);
	show("SO_RCVLOWAT", get_int(fd, SOL_SOCKET, SO_RCVLOWAT));
	set_int(fd, SOL_SOCKET, SO_RCVLOWAT, 6);
	show("SO_RCVLOWAT: set", get_int(fd, SOL_SOCKET, SO_RCVLOWAT));
	show("SO_RCVLOWAT: poll", poll(&p, 1, 0));
	send(fd, "x", 1, 0);
	show_poll("SO_RCVLOWAT: enough", poll(&p, 1, 10000), p.revents);
	show("SO_RCVLOWAT: recv", recv(fd, text, sizeof(text), 0));
	close(fd);
}

static void timeouts(void)
{
	int fd = talk("end");
	struct timeval wait = {.tv_usec = 40000}, got = {0};
	socklen_t len = sizeof(got);
	char text[20];

	show("SO_RCVTIMEO",
	     setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)));
	show("SO_RCVTIMEO: recv", recv(fd, text, 1, 0));
	show("SO_RCVTIMEO: MSG_WAITALL", recv(fd, text, 9, MSG_WAITALL));
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &got, &len);
	show_text("SO_RCVTIMEO: read", "%ld.%06ld %u", (long)got.tv_sec,
		  (long)got.tv_usec, len);
	wait.tv_usec = 1000000;
	show("SO_RCVTIMEO: a million us",
	     setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)));
	wait = (struct timeval){.tv_sec = -1, .tv_usec = 1};
	show("SO_RCVTIMEO: negative",
	     setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)));
	show("SO_RCVTIMEO: negative: recv", recv(fd, text, 1, 0));
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &got, &len);
	show_text("SO_RCVTIMEO: negative: read", "%ld.%06ld", (long)got.tv_sec,
		  (long)got.tv_usec);
	close(fd);
}

/* ---- writing ---- */

static void writing(void)
{
	static const char bytes[64 << 10];
	int fd = talk("read:60 say:ok echo"), n = -1, file, pipes[2];
	struct iovec parts[3] = {
		{(char *)"ab", 2}, {NULL, 0}, {(char *)"cd", 2}};
	struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 3};
	struct sockaddr_in addr = peer_addr(closed_port);
	struct mmsghdr many[2] = {{.msg_hdr = msg}, {.msg_hdr = msg}};
	char text[100];
	off_t from = 10;

	show("send of 0", send(fd, "", 0, 0));
	show("write", write(fd, bytes, 10));
	show("writev", writev(fd, parts, 3));
	show("sendmsg", sendmsg(fd, &msg, MSG_NOSIGNAL));
	show("sendmmsg", sendmmsg(fd, many, 2, 0));
	show_text("sendmmsg: lengths", "%u %u", many[0].msg_len,
		  many[1].msg_len);
	show("sendto with an address",
	     sendto(fd, bytes, 4, 0, (struct sockaddr *)&addr, sizeof(addr)));
	show("MSG_MORE", send(fd, bytes, 4, MSG_MORE));
	show("MSG_EOR", send(fd, bytes, 4, MSG_EOR));
	file = memfd_create("file", 0);
	show("a file", write(file, bytes, 100));
	show("sendfile", sendfile(fd, file, &from, 16));
	show("sendfile: offset", from);
	show("sendfile: beyond the end", sendfile(fd, file, &(off_t){500}, 10));
	show("sendfile: to itself", sendfile(fd, fd, NULL, 10));
	show("writev of none", writev(fd, parts, 0));
	show("the peer has it all",
	     send(fd, bytes, 6, 0) + recv(fd, text, 2, MSG_WAITALL));
	show("SIOCOUTQ", ioctl(fd, SIOCOUTQ, &n));
	show("SIOCOUTQ: bytes", n);
	show("pread", pread(fd, text, 1, 0));
	show("pwrite", pwrite(fd, text, 1, 0));
	show("lseek", lseek(fd, 0, SEEK_SET));
	show("fsync", fsync(fd));
	show("ftruncate", ftruncate(fd, 0));
	show("mmap",
	     mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1
									   : 0);
	show("unknown ioctl", ioctl(fd, 0x5999, &n));
	show("splice", pipe(pipes));
	show("splice: into the pipe", write(pipes[1], "123", 3));
	show("splice: to the socket", splice(pipes[0], NULL, fd, NULL, 3, 0));
	close(pipes[0]);
	close(pipes[1]);
	close(file);
	close(fd);
}

static void check_kind(void)
{
	int fd = talk("end");
	struct stat stat;

	show("fstat", fstat(fd, &stat));
	show("fstat: a socket", S_ISSOCK(stat.st_mode));
	show("F_GETFL", fcntl(fd, F_GETFL));
	show("F_SETFL", fcntl(fd, F_SETFL, O_NONBLOCK | O_APPEND));
	show("F_GETFL: set", fcntl(fd, F_GETFL));
	show("FIONBIO", ioctl(fd, FIONBIO, &(int){0}));
	show("FIONBIO: F_GETFL", fcntl(fd, F_GETFL));
	show("FIOCLEX", ioctl(fd, FIOCLEX));
	show("FIOCLEX: F_GETFD", fcntl(fd, F_GETFD));
	show("isatty", isatty(fd) ? 1 : -1);
	close(fd);
}

void calls_on_streams(void)
{
	reading();
	short_of_all();
	discarding();
	low_water();
	timeouts();
	writing();
	check_kind();
}

/* ---- ends ---- */

static volatile sig_atomic_t pipes_broken;

static void on_sigpipe(int number)
{
	(void)number;
	pipes_broken++;
}

static void half_closed(void)
{
	int fd = talk("read:3 end say:after close");
	char text[20] = "";

	signal(SIGPIPE, on_sigpipe);
	show("shutdown: unknown direction", shutdown(fd, 7));
	show("shutdown: write before", write(fd, "abc", 3));
	show("shutdown of writing", shutdown(fd, SHUT_WR));
	show("shutdown: write", write(fd, "x", 1));
	show("shutdown: SIGPIPE", pipes_broken);
	show("shutdown: MSG_NOSIGNAL", send(fd, "x", 1, MSG_NOSIGNAL));
	show("shutdown: SIGPIPE, still", pipes_broken);
	show("shutdown: recv", recv(fd, text, 5, MSG_WAITALL));
	show("shutdown: the end", recv(fd, text, 5, 0));
	show_poll("shutdown: both ends: poll", 1,
		  wait_for(fd, POLLIN | POLLOUT | POLLRDHUP));
	show("shutdown: both ends: again", shutdown(fd, SHUT_WR));
	show("shutdown: SO_ERROR", so_error(fd));
	close(fd);
	signal(SIGPIPE, SIG_IGN);
}

static void check_deaf(void)
{
	int fd = talk("read:1 say:late read:1 say:more end");
	char text[20] = "";

	show("SHUT_RD", shutdown(fd, SHUT_RD));
	show("SHUT_RD: recv", recv(fd, text, 5, 0));
	show_poll("SHUT_RD: poll", 1, wait_for(fd, POLLIN | POLLRDHUP));
	send(fd, "x", 1, 0);
	while (recv(fd, text, 4, MSG_PEEK | MSG_DONTWAIT) == 0)
		;
	errno = 0;
	show("SHUT_RD: what comes after", recv(fd, text, 5, 0));
	show("SHUT_RD: then", recv(fd, text, 5, 0));
	close(fd);
}

static void set_linger(int fd, int seconds)
{
	struct linger linger = {.l_onoff = 1, .l_linger = seconds};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

static void resets(void)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	int fd = talk("say:left read:1 reset");
	char text[20] = "";

	await_bytes(fd, 4);
	send(fd, "x", 1, 0);
	show_poll("reset: poll", 1, wait_for(fd, POLLRDHUP));
	show_poll("reset: poll, more", 1,
		  wait_for(fd, POLLIN | POLLOUT | POLLRDHUP));
	show("reset: getpeername", getpeername(fd, (void *)&name, &len));
	show("reset: getsockname", getsockname(fd, (void *)&name, &len));
	show("reset: recv", recv(fd, text, 20, 0));
	show("reset: recv again", recv(fd, text, 20, 0));
	show("reset: send", send(fd, "x", 1, 0));
	show("reset: shutdown", shutdown(fd, SHUT_WR));
	show("reset: SO_ERROR", so_error(fd));
	close(fd);
	fd = talk("read:1 reset");
	send(fd, "x", 1, 0);
	wait_for(fd, POLLIN);
	show("reset: SO_ERROR first", so_error(fd));
	show("reset: recv then", recv(fd, text, 20, 0));
	close(fd);
	fd = talk("read:1 reset");
	send(fd, "x", 1, 0);
	wait_for(fd, POLLIN);
	show("reset: send first", send(fd, "x", 1, 0));
	show("reset: send then", send(fd, "x", 1, 0));
	close(fd);
	fd = accepted("end close");
	set_linger(fd, 0);
	show("SO_LINGER of 0: close", close(fd));
}

/* ---- SO_LINGER ---- */

/* The peer, which has read everything to the end, dials. */
static void show_arrival(const char *label, int listens)
{
	int fd = accept(listens, NULL, NULL);

	show(label, fd < 0 ? -1 : 0);
	close(fd);
}

/* The peer has acknowledged the FIN when close() returns; its own comes later,
 * to a socket that has gone. */
static void lingers(void)
{
	char script[50], text[4];
	unsigned port;
	int listens = listener(&port), fd;

	snprintf(script, sizeof(script), "end dial:%u read:1 say:ok", port);
	fd = talk(script);
	set_linger(fd, 10);
	show("SO_LINGER: close", close(fd));
	fd = accept(listens, NULL, NULL);
	show("SO_LINGER: the peer got the FIN",
	     send(fd, "x", 1, 0) + recv(fd, text, 2, MSG_WAITALL));
	close(fd);
	close(listens);
}

/* The peer reads nothing for longer than close() may wait, and then all. */
static void lingers_in_vain(void)
{
	static const char bytes[1 << 16];
	struct timespec begin, end;
	char script[50];
	unsigned port, arrives;
	int dialed = listener(&port), listens = listener(&arrives);
	int first, fd;

	snprintf(script, sizeof(script), "follow end dial:%u", arrives);
	first = ask_to_dial(port, script);
	fd = accept(dialed, NULL, NULL);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 100; i++, usleep(1000))
		while (send(fd, bytes, sizeof(bytes), 0) > 0)
			i = 0;
	set_linger(fd, 1);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	errno = 0;
	show("SO_LINGER, in vain: close", close(fd));
	clock_gettime(CLOCK_MONOTONIC, &end);
	show("SO_LINGER, in vain: waits although non-blocking",
	     (end.tv_sec - begin.tv_sec) * 1000 +
			     (end.tv_nsec - begin.tv_nsec) / 1000000 >=
		     990);
	close(first);
	show_arrival("SO_LINGER, in vain: the peer got everything", listens);
	close(listens);
	close(dialed);
}

void calls_at_the_end(void)
{
	half_closed();
	check_deaf();
	resets();
	lingers();
	lingers_in_vain();
}

/* ---- faults ---- */

static sigjmp_buf out;
static volatile sig_atomic_t faults;

static void on_fault(int number)
{
	(void)number;
	faults++;
	siglongjmp(out, 1);
}

/* A buffer with an unmapped second page. */
static void half_there(void)
{
	int fd = talk("say:0123456789 echo");
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec parts[2] = {{pages + 4094, 2}, {pages + 4096, 2}};

	munmap(pages + 4096, 4096);
	await_bytes(fd, 10);
	show("fault: recv into half", recv(fd, pages + 4092, 100, 0));
	show("fault: readv into half", readv(fd, parts, 2));
	show("fault: peek into half", recv(fd, pages + 4092, 100, MSG_PEEK));
	show("fault: recv of all that is there", recv(fd, pages, 100000, 0));
	show("fault: send of half", send(fd, pages + 4092, 100, 0));
	show("fault: writev of half", writev(fd, parts, 2));
	show("fault: nothing was sent", send(fd, "ab", 2, 0));
	show("fault: but that", recv(fd, pages, 2, MSG_WAITALL));
	show("fault: and no more", recv(fd, pages, 2, MSG_DONTWAIT));
	close(fd);
	munmap(pages, 4096);
}

/* The program's SIGSEGV handler sees its own faults, and none of a call's. */
static void handled_faults(void)
{
	int fd = talk("say:0123456789 end");
	sigset_t mask, old;

	await_bytes(fd, 10);
	signal(SIGSEGV, on_fault);
	show("fault: recv, with a handler", recv(fd, nowhere, 4, 0));
	show("fault: handled", faults);
	if (!sigsetjmp(out, 1))
		*(volatile char *)nowhere = 1;
	show("fault: of the program's own", faults);
	signal(SIGSEGV, SIG_DFL);
	sigfillset(&mask);
	sigprocmask(SIG_SETMASK, &mask, &old);
	show("fault: recv, with all signals blocked", recv(fd, nowhere, 4, 0));
	sigprocmask(SIG_SETMASK, &old, NULL);
	show("fault: SIGSEGV, ignored", signal(SIGSEGV, SIG_IGN) == SIG_DFL);
	show("fault: recv, with SIGSEGV ignored", recv(fd, nowhere, 4, 0));
	raise(SIGSEGV);
	show("fault: raise, with SIGSEGV ignored", faults);
	signal(SIGSEGV, SIG_DFL);
	close(fd);
}

void calls_with_faults(void)
{
	int fd = talk("say:0123456789 end");
	struct iovec parts[2] = {{nowhere, 4}, {nowhere, 4}};
	struct iovec *many = calloc(IOV_MAX + 1, sizeof(*many));
	struct msghdr msg = {.msg_iov = nowhere, .msg_iovlen = 1};
	struct sockaddr_in addr = peer_addr(closed_port);
	socklen_t len = sizeof(addr);
	volatile int minus_one = -1;
	char text[20] = "";

	await_bytes(fd, 10);
	show("fault: recv", recv(fd, nowhere, 4, 0));
	show("fault: read", read(fd, nowhere, 4));
	show("fault: peek", recv(fd, nowhere, 4, MSG_PEEK));
	show("fault: send", send(fd, nowhere, 4, 0));
	show("fault: write", write(fd, nowhere, 4));
	show("fault: readv", readv(fd, parts, 2));
	show("fault: writev", writev(fd, parts, 2));
	show("fault: readv's parts", readv(fd, nowhere, 2));
	show("fault: writev's parts", writev(fd, nowhere, 2));
	show("fault: recvmsg", recvmsg(fd, nowhere, 0));
	show("fault: recvmsg's parts", recvmsg(fd, &msg, 0));
	show("fault: sendmsg", sendmsg(fd, nowhere, 0));
	show("fault: sendmsg's parts", sendmsg(fd, &msg, 0));
	show("fault: all is still there", recv(fd, text, 20, 0));
	show("fault: getsockname", getsockname(fd, nowhere, &len));
	show("fault: getsockname's length",
	     getsockname(fd, (void *)&addr, nowhere));
	show("fault: getpeername", getpeername(fd, nowhere, &len));
	show("fault: connect", connect(fd, nowhere, sizeof(addr)));
	show("fault: bind", bind(fd, nowhere, sizeof(addr)));
	show("fault: setsockopt",
	     setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, nowhere, 4));
	show("fault: getsockopt",
	     getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, nowhere, &len));
	show("fault: getsockopt's length",
	     getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, text, nowhere));
	show("fault: poll", poll(nowhere, 1, 0));
	show("fault: select", select(fd + 1, nowhere, NULL, NULL, NULL));
	show("fault: FIONREAD", ioctl(fd, FIONREAD, nowhere));
	show("fault: sendto's address",
	     sendto(fd, text, 1, 0, nowhere, sizeof(addr)));
	show("IOV_MAX + 1: readv", readv(fd, many, IOV_MAX + 1));
	show("IOV_MAX + 1: writev", writev(fd, many, IOV_MAX + 1));
	msg = (struct msghdr){.msg_iov = many, .msg_iovlen = IOV_MAX + 1};
	show("IOV_MAX + 1: sendmsg", sendmsg(fd, &msg, 0));
	show("IOV_MAX + 1: recvmsg", recvmsg(fd, &msg, 0));
	parts[0] = (struct iovec){text, (size_t)-1};
	show("iov_len of -1: readv", readv(fd, parts, 1));
	show("iov_len of -1: writev", writev(fd, parts, 1));
	show("count of -1: writev", writev(fd, parts, minus_one));
	close(fd);
	free(many);
	half_there();
	handled_faults();
}
