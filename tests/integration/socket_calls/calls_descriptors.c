/* Descriptors and their copies, signals and children. */

#include "calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- copies ---- */

static void copies(void)
{
	int fd = talk("say:abcdef end say:end close"), copy = dup(fd), far;
	char text[20] = "";

	show("dup: read", recv(copy, text, 2, MSG_WAITALL));
	show("dup: read of the first", recv(fd, text, 2, MSG_WAITALL));
	fcntl(copy, F_SETFL, O_NONBLOCK);
	show("dup: O_NONBLOCK is shared", fcntl(fd, F_GETFL) & O_NONBLOCK);
	fcntl(copy, F_SETFL, 0);
	far = fcntl(fd, F_DUPFD_CLOEXEC, 100);
	show("F_DUPFD_CLOEXEC", far);
	show("F_DUPFD_CLOEXEC: F_GETFD", fcntl(far, F_GETFD));
	show("dup2", dup2(fd, 90));
	show("dup2: to itself", dup2(90, 90));
	show("dup3: to itself", dup3(90, 90, 0));
	show("dup2: beyond the limit", dup2(fd, 1 << 30));
	show("dup2: F_GETFD", fcntl(90, F_GETFD));
	close(90);
	close(far);
	close(fd);
	show("dup: after close of the first", recv(copy, text, 2, MSG_WAITALL));
	show("dup: not the end yet", recv(copy, text, 1, MSG_DONTWAIT));
	shutdown(copy, SHUT_WR);
	show("dup: shutdown for all", recv(copy, text, 3, MSG_WAITALL));
	close(copy);
	show("F_DUPFD: not open", fcntl(copy, F_DUPFD, 0));
}

/* The peer sees the end of the first connection, and no byte of the file. */
static void number_again(const char *how, int fd)
{
	char label[80];
	int file = memfd_create("file", 0);

	snprintf(label, sizeof(label), "%s: the number again", how);
	show(label, file == fd);
	snprintf(label, sizeof(label), "%s: write to the file", how);
	show(label, write(file, "of the file", 11));
	snprintf(label, sizeof(label), "%s: read of the file", how);
	show(label, pread(file, label + 70, 10, 0));
	close(file);
}

static void closing_calls(void)
{
	int fd = talk("end"), pair[2];
	FILE *stream = fdopen(fd, "r+");

	show("fclose", fclose(stream));
	number_again("fclose", fd);
	fd = talk("end");
	show("syscall(SYS_close)", syscall(SYS_close, fd));
	number_again("syscall(SYS_close)", fd);
	fd = talk("end");
	show("close_range", close_range((unsigned)fd, (unsigned)fd, 0));
	number_again("close_range", fd);
	fd = talk("end");
	pipe(pair);
	show("dup2 over it", dup2(pair[0], fd) == fd);
	show("dup2 over it: the pipe",
	     (write(pair[1], "abc", 3), read(fd, pair, 1)));
	close(fd);
}

static void open_ranges(void)
{
	int fd = talk("end"), file = memfd_create("file", 0);
	char text[4];

	dup2(fd, 310);
	dup2(file, 305);
	dup2(file, 320);
	show("close_range: CLOEXEC", close_range(3, ~0U, CLOSE_RANGE_CLOEXEC));
	show("close_range: CLOEXEC: the file", fcntl(305, F_GETFD));
	show("close_range: CLOEXEC: the socket", fcntl(310, F_GETFD));
	show("close_range: all", close_range(3, ~0U, 0));
	show("close_range: all: the file", fcntl(305, F_GETFD));
	show("close_range: all: the socket", fcntl(310, F_GETFD));
	show("close_range: all: the last", fcntl(320, F_GETFD));
	show("close_range: backwards", close_range(9, 8, 0));
	fd = talk("say:abc end");
	show("close_range: a new connection", recv(fd, text, 3, MSG_WAITALL));
	close(fd);
}

/* ---- numbers that the program has closed without the C library ---- */

static int number_of_closed(void)
{
	int fd = talk("end");

	syscall(SYS_close, fd);
	return fd;
}

static void show_again(const char *how, bool again, long result)
{
	char label[80];

	snprintf(label, sizeof(label), "%s: the number again", how);
	show(label, again);
	snprintf(label, sizeof(label), "%s: what it does", how);
	show(label, result);
}

static void numbers_of_events(void)
{
	struct itimerspec once = {.it_value = {0, 1}};
	char room[256];
	sigset_t set;
	int fd = number_of_closed(), made = eventfd(1, 0);

	show_again("eventfd", made == fd, read(made, room, sizeof(room)));
	close(made);
	fd = number_of_closed();
	made = timerfd_create(CLOCK_MONOTONIC, 0);
	timerfd_settime(made, 0, &once, NULL);
	show_again("timerfd", made == fd, read(made, room, sizeof(room)));
	close(made);
	fd = number_of_closed();
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	made = signalfd(-1, &set, 0);
	raise(SIGUSR2);
	show_again("signalfd", made == fd, read(made, room, sizeof(room)));
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	close(made);
	fd = number_of_closed();
	made = inotify_init1(IN_NONBLOCK);
	show_again("inotify", made == fd, read(made, room, sizeof(room)));
	close(made);
}

static void numbers_of_pairs(void)
{
	char room[8];
	int fd = number_of_closed(), pair[2], other;

	pipe2(pair, O_CLOEXEC);
	write(pair[1], "abc", 3);
	show_again("pipe2", pair[0] == fd, read(pair[0], room, sizeof(room)));
	close(pair[0]);
	close(pair[1]);
	fd = number_of_closed();
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	write(pair[0], "abcd", 4);
	show_again("socketpair", pair[0] == fd,
		   read(pair[1], room, sizeof(room)));
	close(pair[0]);
	close(pair[1]);
	other = open("/", O_PATH);
	fd = number_of_closed();
	show_again("dup", dup(other) == fd, read(fd, room, 1));
	close(fd);
	fd = number_of_closed();
	show_again("F_DUPFD", fcntl(other, F_DUPFD, fd) == fd,
		   write(fd, room, 1));
	close(fd);
	close(other);
}

static void numbers_of_files(void)
{
	char room[8];
	int fd = number_of_closed();
	DIR *dir = opendir("/proc/self");
	FILE *stream;

	show_again("opendir", dirfd(dir) == fd, readdir(dir) != NULL);
	closedir(dir);
	fd = number_of_closed();
	stream = fopen("/proc/self/comm", "r");
	show_again("fopen", fileno(stream) == fd, getc(stream) > 0);
	fclose(stream);
	fd = number_of_closed();
	show_again("openat", openat(AT_FDCWD, "/dev/zero", O_RDONLY) == fd,
		   read(fd, room, sizeof(room)));
	close(fd);
}

static void by_number(void)
{
	int fd = talk("read:4 say:abcdefgh end");
	char text[20] = "";

	show("syscall(SYS_write)", syscall(SYS_write, fd, "abcd", 4));
	show("syscall(SYS_read)", syscall(SYS_read, fd, text, 1));
	show("__read_chk", read(fd, text, 1));
	show("dprintf", dprintf(fd, "%d", 42));
	{
		FILE *in = fdopen(dup(fd), "r");

		show("fdopen: getc", getc(in));
		fclose(in);
	}
	close(fd);
}

static void passing(void)
{
	int fd = talk("say:abc end"), pair[2], n;
	char text[4] = "", room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {text, 1};
	struct msghdr msg = {.msg_iov = &part,
			     .msg_iovlen = 1,
			     .msg_control = room,
			     .msg_controllen = sizeof(room)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	show("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	show("SCM_RIGHTS: send", sendmsg(pair[0], &msg, 0));
	n = (int)recvmsg(pair[1], &msg, MSG_DONTWAIT);
	show("SCM_RIGHTS: recv", n);
	if (n == 1) {
		memcpy(&n, CMSG_DATA(head), sizeof(n));
		show("SCM_RIGHTS: read", recv(n, text, 3, MSG_WAITALL));
		close(n);
	}
	close(pair[0]);
	close(pair[1]);
	close(fd);
}

/* ---- children ---- */

static int status_of(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int write_in_child(void *arg)
{
	return write(*(int *)arg, "x", 1) == 1 ? 0 : errno;
}

/* No handler of pthread_atfork() sees it. */
static void cloned(void)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	int fd = talk("say:abc read:2 say:more end");
	char text[8];

	show("clone: write in the child",
	     status_of(clone(write_in_child, stack + sizeof(stack), SIGCHLD,
			     &fd)));
	show("clone: read in the parent", recv(fd, text, 3, MSG_WAITALL));
	show("clone: write in the parent", send(fd, "x", 1, 0));
	close(fd);
}

static void children(void)
{
	int fd = talk("say:abc read:1 say:more end"), one = 1;
	struct linger linger = {.l_onoff = 1, .l_linger = 1};
	char text[8];
	pid_t child;

	child = fork();
	if (child == 0) {
		close(fd);
		_exit(0);
	}
	show("fork: close in the child", status_of(child));
	show("fork: read in the parent", recv(fd, text, 3, MSG_WAITALL));
	child = fork();
	if (child == 0) {
		int n = (int)write(fd, "x", 1);

		_exit(n == 1 ? 0 : errno);
	}
	show("fork: write in the child", status_of(child));
	child = fork();
	if (child == 0) {
		dup2(STDOUT_FILENO, fd);
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, 4);
		_exit(0);
	}
	show("fork: dup2 in the child", status_of(child));
	show("fork: write in the parent", send(fd, "x", 1, 0));
	show("vfork: SO_LINGER",
	     setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	child = vfork();
	if (child == 0) {
		close(fd);
		_exit(7);
	}
	show("vfork: close in the child", status_of(child));
	show("vfork: read in the parent", recv(fd, text, 4, MSG_WAITALL));
	child = vfork();
	if (child == 0) {
		dup2(fd, 91);
		_exit(8);
	}
	show("vfork: dup2 in the child", status_of(child));
	show("vfork: its copy in the parent", write(91, "x", 1));
	show("system", system("exit 3") >> 8);
	close(fd);
}

/* The child's descriptors are its own, and the parent's connection lives. */
static void closed_in_child(void)
{
	int fd = talk("say:abc end");
	char text[4];
	pid_t child = fork();

	if (child == 0) {
		closefrom(3);
		_exit(write(fd, "x", 1) < 0 ? errno : 0);
	}
	show("closefrom: in the child", status_of(child));
	show("closefrom: read in the parent", recv(fd, text, 3, MSG_WAITALL));
	close(fd);
}

void calls_on_descriptors(void)
{
	copies();
	closing_calls();
	open_ranges();
	numbers_of_events();
	numbers_of_pairs();
	numbers_of_files();
	by_number();
	passing();
	children();
	cloned();
	closed_in_child();
}

/* ---- signals ---- */

static volatile sig_atomic_t alarms, alarms_on_own_stack;
static char own_stack[64 << 10];

static void on_timer(int number)
{
	const char *frame = __builtin_frame_address(0);

	(void)number;
	alarms_on_own_stack +=
		frame >= own_stack && frame < own_stack + sizeof(own_stack);
	alarms++;
}

static timer_t timer;

/* Sends SIGUSR1 repeatedly, since one may come before the call waits. */
static void start_signals(int flags)
{
	struct sigaction action = {.sa_handler = on_timer, .sa_flags = flags};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
				 .sigev_signo = SIGUSR1};
	struct itimerspec each = {{0, 30000000}, {0, 30000000}};

	sigaction(SIGUSR1, &action, NULL);
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	timer_settime(timer, 0, &each, NULL);
	errno = 0;
}

static void stop_signals(void)
{
	timer_delete(timer);
}

static void interrupted(void)
{
	unsigned port;
	int fd = talk("end"), listens = listener(&port);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct timeval wait = {.tv_sec = 1};
	char text[20];

	start_signals(0);
	show("EINTR: recv", recv(fd, text, 1, 0));
	show("EINTR: read", read(fd, text, 1));
	show("EINTR: MSG_WAITALL", recv(fd, text, 9, MSG_WAITALL));
	show("EINTR: poll", poll(&p, 1, -1));
	show("EINTR: accept", accept(listens, NULL, NULL));
	show("EINTR: sleep", usleep(900000));
	stop_signals();
	start_signals(SA_RESTART);
	show("SA_RESTART: poll", poll(&p, 1, -1));
	show("SA_RESTART: sleep", usleep(900000));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	show("SA_RESTART: SO_RCVTIMEO", recv(fd, text, 1, 0));
	setsockopt(listens, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	show("SA_RESTART: accept, SO_RCVTIMEO", accept(listens, NULL, NULL));
	stop_signals();
	close(fd);
	close(listens);
	signal(SIGUSR1, SIG_DFL);
}

/* Its header calls it deprecated. */
extern int set_interrupts(int signo, int interrupts) __asm__("siginterrupt");

static void set_to_interrupt(void)
{
	int fd = talk("end");
	char text[20];

	start_signals(SA_RESTART);
	show("siginterrupt", set_interrupts(SIGUSR1, 1));
	show("siginterrupt: recv", recv(fd, text, 1, 0));
	signal(SIGUSR1, on_timer);
	show("siginterrupt: recv after signal()", recv(fd, text, 1, 0));
	show("siginterrupt: not a signal", set_interrupts(4000, 1));
	set_interrupts(SIGUSR1, 0);
	stop_signals();
	signal(SIGUSR1, SIG_DFL);
	close(fd);
}

static void *say_later(void *arg)
{
	usleep(120000);
	if (write(*(int *)arg, "x", 1) < 0)
		perror("write");
	return NULL;
}

static void restarted(void)
{
	int fd = talk("read:1 say:abc end");
	pthread_t thread;
	char text[20];

	start_signals(SA_RESTART);
	pthread_create(&thread, NULL, say_later, &fd);
	show("SA_RESTART: recv", recv(fd, text, 3, 0));
	pthread_join(thread, NULL);
	stop_signals();
	signal(SIGUSR1, SIG_DFL);
	close(fd);
}

/* Handlers with a stack of their own, while main() computes and waits. */
static void alternate_stack(void)
{
	stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof(own_stack)};
	int fd = talk("end");
	char text[20];

	show("sigaltstack", sigaltstack(&stack, NULL));
	alarms = alarms_on_own_stack = 0;
	start_signals(SA_ONSTACK);
	while (!alarms)
		;
	show("SA_ONSTACK: computing", alarms_on_own_stack == alarms);
	show("SA_ONSTACK: recv", recv(fd, text, 1, 0));
	stop_signals();
	show("SA_ONSTACK: of recv", alarms_on_own_stack == alarms);
	stack.ss_flags = SS_DISABLE;
	show("sigaltstack: none", sigaltstack(&stack, NULL));
	signal(SIGUSR1, SIG_DFL);
	close(fd);
}

static volatile sig_atomic_t info_code, info_sent, info_context;

static void on_info(int number, siginfo_t *info, void *context)
{
	info_code = info->si_code;
	info_sent = info->si_value.sival_int;
	info_context = ((ucontext_t *)context)->uc_flags != 0;
	(void)number;
}

static void queued_with_value(void)
{
	struct sigaction action = {.sa_sigaction = on_info,
				   .sa_flags = SA_SIGINFO};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
				 .sigev_signo = SIGUSR1,
				 .sigev_value.sival_int = 42};
	struct itimerspec each = {{0, 30000000}, {0, 30000000}};
	int fd = talk("end");
	char text[20];

	sigaction(SIGUSR1, &action, NULL);
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	timer_settime(timer, 0, &each, NULL);
	show("SA_SIGINFO: recv", recv(fd, text, 1, 0));
	stop_signals();
	show("SA_SIGINFO: si_code", info_code);
	show("SA_SIGINFO: si_value", info_sent);
	show("SA_SIGINFO: a context", info_context);
	signal(SIGUSR1, SIG_DFL);
	close(fd);
}

static volatile sig_atomic_t order;

static void on_queued(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	order = order * 10 + info->si_value.sival_int;
}

/* Signals that come while the call waits for the first one's handler. */
static pid_t send_queued(void)
{
	pid_t child = fork();

	order = 0;
	if (child)
		return child;
	usleep(100000);
	for (int i = 1; i <= 5; i++)
		sigqueue(getppid(), SIGRTMIN + 3,
			 (union sigval){.sival_int = i});
	_exit(0);
}

static void queued(void)
{
	struct sigaction action = {.sa_sigaction = on_queued,
				   .sa_flags = SA_SIGINFO};
	const struct timespec moment = {.tv_nsec = 50000000};
	const struct timeval wait = {.tv_usec = 50000};
	int fd = talk("end"), i;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	sigset_t set, empty, now;
	char text[8];
	pid_t child;

	sigaction(SIGRTMIN + 3, &action, NULL);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	child = send_queued();
	for (i = 0; i < 400 && order < 10000; i++)
		recv(fd, text, 1, 0);
	show("queued: recv", order);
	show("queued: child", status_of(child));
	sigemptyset(&empty);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	sigprocmask(SIG_BLOCK, &set, NULL);
	child = send_queued();
	for (i = 0; i < 400 && order < 10000; i++)
		ppoll(&p, 1, &moment, &empty);
	show("queued: ppoll", order);
	show("queued: child of ppoll", status_of(child));
	sigprocmask(SIG_UNBLOCK, &set, &now);
	show("queued: blocked as before", sigismember(&now, SIGRTMIN + 3));
	child = send_queued();
	for (i = 0; i < 400 && order < 10000; i++)
		ppoll(&p, 1, &moment, &empty);
	show("queued: ppoll without a block", order);
	show("queued: its child", status_of(child));
	sigprocmask(SIG_BLOCK, NULL, &now);
	show("queued: open as before", sigismember(&now, SIGRTMIN + 3));
	signal(SIGRTMIN + 3, SIG_DFL);
	close(fd);
}

static void owners(void)
{
	int fd = talk("read:1 say:abc end");

	show("F_SETOWN", fcntl(fd, F_SETOWN, getpid()));
	show("F_GETOWN", fcntl(fd, F_GETOWN) == getpid());
	alarms = 0;
	signal(SIGIO, on_timer);
	show("O_ASYNC", fcntl(fd, F_SETFL, O_ASYNC));
	show("O_ASYNC: F_GETFL", fcntl(fd, F_GETFL));
	send(fd, "x", 1, 0);
	for (int i = 0; i < 300 && !alarms; i++)
		usleep(10000);
	show("O_ASYNC: SIGIO", alarms > 0);
	close(fd);
	signal(SIGIO, SIG_DFL);
}

/* A child that shares the memory resets its signals before it calls exec. */
static void reset_by_child(void)
{
	pid_t child;

	alarms = 0;
	signal(SIGUSR1, on_timer);
	child = vfork();
	if (child == 0) {
		signal(SIGUSR1, SIG_DFL);
		_exit(9);
	}
	show("vfork: signal in the child", status_of(child));
	raise(SIGUSR1);
	show("vfork: the parent's handler", alarms);
	show("vfork: the parent's action",
	     signal(SIGUSR1, SIG_DFL) == on_timer);
}

void calls_with_signals(void)
{
	interrupted();
	restarted();
	set_to_interrupt();
	alternate_stack();
	queued_with_value();
	queued();
	reset_by_child();
	owners();
}
