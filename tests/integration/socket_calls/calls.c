/*
 * Prints the results of socket calls, to compare coronet-run with the kernel.
 */
#include "calls.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANG_S 20

void *volatile nowhere = (void *)16;
unsigned closed_port;
unsigned peer_port;
static const char *own_text, *peer_text, *peer_text6;

/* ---- lines ---- */

static const char *volatile last_label = "the beginning";

static void begin_next(const char *label)
{
	last_label = label;
	fflush(stdout);
	alarm(HANG_S);
	errno = 0;
}

void show(const char *label, long result)
{
	int err = errno;

	if (result < 0)
		printf("%s: %ld %s\n", label, result, strerrorname_np(err));
	else
		printf("%s: %ld\n", label, result);
	begin_next(label);
}

void show_text(const char *label, const char *format, ...)
{
	va_list args;

	printf("%s: ", label);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	begin_next(label);
}

void show_poll(const char *label, int result, short events)
{
	static const struct {
		short bit;
		const char *name;
	} names[] = {{POLLIN, " in"},	      {POLLPRI, " pri"},
		     {POLLOUT, " out"},	      {POLLRDHUP, " rdhup"},
		     {POLLERR, " err"},	      {POLLHUP, " hup"},
		     {POLLNVAL, " nval"},     {POLLRDNORM, " rdnorm"},
		     {POLLWRNORM, " wrnorm"}, {POLLRDBAND, " rdband"},
		     {POLLWRBAND, " wrband"}};
	char text[100] = "";

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (events & names[i].bit)
			strcat(text, names[i].name);
	show_text(label, "%d%s", result, text);
}

/* ---- peer ---- */

static void fail_with(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

struct sockaddr_in peer_addr(unsigned port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons((uint16_t)port)};

	inet_pton(AF_INET, peer_text, &addr.sin_addr);
	return addr;
}

struct sockaddr_in6 peer_addr6(unsigned port)
{
	struct sockaddr_in6 addr = {.sin6_family = AF_INET6,
				    .sin6_port = htons((uint16_t)port)};

	inet_pton(AF_INET6, peer_text6, &addr.sin6_addr);
	return addr;
}

struct sockaddr_in own_addr(unsigned port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons((uint16_t)port)};

	inet_pton(AF_INET, own_text, &addr.sin_addr);
	return addr;
}

static int hand_over(int fd, const char *script)
{
	char line[200];
	int n = snprintf(line, sizeof(line), "%s\n", script);

	if (write(fd, line, (size_t)n) != n)
		fail_with(script);
	errno = 0;
	return fd;
}

int talk(const char *script)
{
	struct sockaddr_in addr = peer_addr(peer_port);
	int fd = tcp();

	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		fail_with(script);
	return hand_over(fd, script);
}

int talk6(const char *script)
{
	struct sockaddr_in6 addr = peer_addr6(peer_port);
	int fd = tcp6();

	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		fail_with(script);
	return hand_over(fd, script);
}

int listener(unsigned *port)
{
	struct sockaddr_in addr = own_addr(0);
	socklen_t len = sizeof(addr);
	int fd = tcp();

	if (bind(fd, (struct sockaddr *)&addr, len) < 0 || listen(fd, 8) < 0 ||
	    getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
		fail_with("a listener");
	*port = ntohs(addr.sin_port);
	return fd;
}

int ask_to_dial(unsigned port, const char *script)
{
	char line[100];

	snprintf(line, sizeof(line), "dial:%u %s", port, script);
	return talk(line);
}

int accepted(const char *script)
{
	unsigned port;
	int listens = listener(&port), asked = ask_to_dial(port, script);
	int fd = accept(listens, NULL, NULL);

	if (fd < 0)
		fail_with("accept");
	close(listens);
	close(asked);
	errno = 0;
	return fd;
}

/* ---- short forms ---- */

short wait_for(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	if (poll(&p, 1, HANG_S * 500) < 0)
		fail_with("poll");
	return p.revents;
}

int tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		fail_with("socket");
	return fd;
}

int tcp6(void)
{
	int fd = socket(AF_INET6, SOCK_STREAM, 0);

	if (fd < 0)
		fail_with("socket");
	return fd;
}

int so_error(int fd)
{
	return get_int(fd, SOL_SOCKET, SO_ERROR);
}

void set_int(int fd, int level, int option, int value)
{
	(void)setsockopt(fd, level, option, &value, sizeof(value));
}

int get_int(int fd, int level, int option)
{
	int value = 0;
	socklen_t len = sizeof(value);

	return getsockopt(fd, level, option, &value, &len) < 0 ? -1 : value;
}

/* ---- the program ---- */

/* The first alarm ends a waiting call, the second the program. */
static void on_alarm(int number)
{
	const char *words[] = {"after ", last_label, ": HANGS\n"};

	(void)number;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (write(STDOUT_FILENO, words[i], strlen(words[i])) < 0)
			_exit(1);
	alarm(HANG_S);
	signal(SIGALRM, SIG_DFL);
}

static const struct {
	const char *name;
	void (*run)(void);
} groups[] = {
	/* first, while the dynamic linker still looks for functions */
	{"small stacks", calls_on_small_stacks},
	{"new", calls_on_new_sockets},
	{"connect", calls_that_connect},
	{"listen", calls_that_listen},
	{"stream", calls_on_streams},
	{"end", calls_at_the_end},
	{"faults", calls_with_faults},
	{"poll", calls_of_poll},
	{"epoll", calls_of_epoll},
	{"options", calls_on_options},
	{"descriptors", calls_on_descriptors},
	{"stdio", calls_of_stdio},
	{"signals", calls_with_signals},
	{"threads", calls_in_threads},
	{"datagrams", calls_on_datagrams},
	{"datagram options", calls_on_dgram_options},
	{"datagram faults", calls_with_dgram_faults},
	{"after main", calls_after_main}, /* last: it does not return */
};

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_alarm};

	if (argc < 6) {
		fprintf(stderr, "usage: socket-calls OWN PEER PEER6 PORT "
				"CLOSED_PORT [GROUP...]\n");
		return 2;
	}
	own_text = argv[1];
	peer_text = argv[2];
	peer_text6 = argv[3];
	peer_port = (unsigned)atoi(argv[4]);
	closed_port = (unsigned)atoi(argv[5]);
	sigaction(SIGALRM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++) {
		bool wanted = argc == 6;

		for (int word = 6; word < argc; word++)
			wanted |= strcmp(argv[word], groups[i].name) == 0;
		if (!wanted)
			continue;
		show_text("group", "%s", groups[i].name);
		groups[i].run();
	}
	return 0;
}
