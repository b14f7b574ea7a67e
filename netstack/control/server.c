/*
 * The control thread: it waits for clients of the control socket and of the
 * page for Prometheus, and answers one request after another.
 *
 * Clients are few and may be slow, silent or hostile, so everything is bounded:
 * 16 clients of each kind, one request and one answer each, five seconds for an
 * HTTP client in all. A further client displaces the one that has been silent
 * longest; one that is being answered is displaced only if all are. No further
 * request is read from a client that does not read its answer, and nothing else
 * waits for it.
 */
#include "netstack/control/control_priv.h"
#include "netstack/program/log.h"

#include <coronet/net_control.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS	   NET_HTTP_CLIENTS
#define DRAIN_MS   1000 /* for a client to close, once it has its answer */
#define SEND_BYTES ((int)NET_CONTROL_MAX_OUTPUT * 2)
#define DEFAULT_IN "dpdk/rte"
#define DEFAULT_AT "dpdk_telemetry.v2"

struct client {
	int fd;		 /* -1: free */
	uint64_t number; /* no two clients have the same */
	int64_t last_ms;
	int64_t until_ms; /* HTTP: then it has to be done */
	bool ends;	  /* its answer was the last */
	char *out;	  /* what it has not taken yet; owned */
	size_t out_len, out_off;
	size_t in_len;
	char in[NET_HTTP_MAX_INPUT + 1];
};

static struct {
	bool running;
	pthread_t thread;
	int wake; /* an eventfd */
	struct net_socket socket;
	int http;
	_Atomic bool stop;
	uint64_t clients; /* so far */
	struct client control[CLIENTS], web[CLIENTS];
	struct net_addr web_at; /* where the page is; port 0: nowhere */
	bool web_own;		/* on the stack's own network */
} server = {.socket.fd = -1, .http = -1};

/* Held while a request is answered, by whichever thread. */
static pthread_mutex_t answering = PTHREAD_MUTEX_INITIALIZER;

char *net_http_answer_alone(const char *request, size_t request_len,
			    size_t *len)
{
	char *text;

	pthread_mutex_lock(&answering);
	text = net_http_answer(request, request_len, len);
	pthread_mutex_unlock(&answering);
	return text;
}

static char *answer_alone(const char *request)
{
	char *text;

	pthread_mutex_lock(&answering);
	text = net_control_answer(request);
	pthread_mutex_unlock(&answering);
	return text;
}

int64_t net_control_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- clients ---- */

static void drop_client(struct client *client)
{
	if (client->fd < 0)
		return;
	close(client->fd);
	net_traces_client_gone(client->number);
	free(client->out);
	client->fd = -1;
	client->out = NULL;
	client->out_len = client->out_off = client->in_len = 0;
	client->ends = false;
}

static bool gives_way_before(const struct client *a, const struct client *b)
{
	if (!a->out != !b->out)
		return !a->out;
	return a->last_ms < b->last_ms;
}

/* Returns a free entry; the longest silent client gives up its own. */
static struct client *slot_for(struct client *clients)
{
	struct client *first = &clients[0];

	for (unsigned i = 0; i < CLIENTS; i++) {
		if (clients[i].fd < 0)
			return &clients[i];
		if (gives_way_before(&clients[i], first))
			first = &clients[i];
	}
	drop_client(first);
	return first;
}

static struct client *take_client(int listener, struct client *clients)
{
	static const struct timespec nap = {.tv_nsec = 50000000};
	struct client *client;
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0) {
		if (errno != EAGAIN && errno != ECONNABORTED)
			nanosleep(&nap,
				  NULL); /* it waits on: no file is left */
		return NULL;
	}
	client = slot_for(clients);
	client->fd = fd;
	client->number = ++server.clients;
	client->last_ms = net_control_now_ms();
	client->until_ms = client->last_ms + NET_HTTP_MS;
	return client;
}

/* Begins to send text, which it owns. text NULL, no memory: ends the client. */
static void begin_answer(struct client *client, char *text, size_t len)
{
	client->out = text;
	client->out_len = len;
	client->out_off = 0;
	if (!text)
		drop_client(client);
}

/* ---- the control socket ---- */

/* Each answer is one message: it goes out whole or not at all. */
static void send_message(struct client *client)
{
	ssize_t n = send(client->fd, client->out, client->out_len,
			 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		drop_client(client);
		return;
	}
	free(client->out);
	client->out = NULL;
}

static void answer_message(struct client *client, char *text)
{
	begin_answer(client, text, text ? strlen(text) : 0);
	if (client->out)
		send_message(client);
}

static void read_message(struct client *client)
{
	ssize_t n = recv(client->fd, client->in, NET_CONTROL_MAX_INPUT,
			 MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop_client(client);
		return;
	}
	client->last_ms = net_control_now_ms();
	if (n > (ssize_t)NET_CONTROL_MAX_INPUT)
		n = NET_CONTROL_MAX_INPUT; /* the name is in front */
	client->in[n] = '\0';
	net_control_client = client->number;
	answer_message(client, answer_alone(client->in));
}

static void greet_client(int listener)
{
	struct client *client = take_client(listener, server.control);
	int bytes = SEND_BYTES;

	if (!client)
		return;
	setsockopt(client->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	answer_message(client, net_control_greeting());
}

static void serve_message(struct client *client, short events)
{
	if (client->out)
		send_message(client);
	else if (events & (POLLIN | POLLHUP | POLLERR))
		read_message(client);
}

/* ---- the page ---- */

static void send_page(struct client *client)
{
	ssize_t n = send(client->fd, client->out + client->out_off,
			 client->out_len - client->out_off,
			 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && errno != EAGAIN && errno != EINTR)
		drop_client(client);
	if (n <= 0)
		return;
	client->out_off += (size_t)n;
	if (client->out_off < client->out_len)
		return;
	free(client->out);
	client->out = NULL;
	/* A RST for bytes that it may still send could destroy the answer. */
	shutdown(client->fd, SHUT_WR);
	client->ends = true;
	client->until_ms = net_control_now_ms() + DRAIN_MS;
}

static void read_request(struct client *client)
{
	ssize_t n = recv(client->fd, client->in + client->in_len,
			 NET_HTTP_MAX_INPUT - client->in_len, MSG_DONTWAIT);
	size_t len = 0;
	char *text;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop_client(client);
		return;
	}
	if (client->ends)
		return; /* and what it says is forgotten */
	client->last_ms = net_control_now_ms();
	client->in_len += (size_t)n;
	client->in[client->in_len] = '\0';
	text = net_http_answer_alone(client->in, client->in_len, &len);
	if (!text)
		return;
	client->in_len = 0;
	begin_answer(client, text, len);
	send_page(client);
}

static void serve_page(struct client *client, short events)
{
	if (client->out)
		send_page(client);
	else if (events)
		read_request(client);
}

/* ---- the thread ---- */

struct waits {
	unsigned n;
	struct pollfd fds[2 * CLIENTS + 3];
	struct client *clients[2 * CLIENTS + 3];
};

static void add_wait(struct waits *waits, int fd, short events,
		     struct client *client)
{
	if (fd < 0)
		return;
	waits->fds[waits->n] = (struct pollfd){.fd = fd, .events = events};
	waits->clients[waits->n++] = client;
}

/* Drops clients that have taken too long. Returns the ms until the next client
 * may have to be dropped, or -1. */
static int expire_clients(int64_t now)
{
	int64_t next = INT64_MAX;

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *client = &server.web[i];

		if (client->fd < 0)
			continue;
		if (client->until_ms <= now)
			drop_client(client);
		else if (client->until_ms < next)
			next = client->until_ms;
	}
	return next == INT64_MAX ? -1 : (int)(next - now);
}

/* Returns the earlier of two times in ms; -1: never. */
static int pick_sooner_ms(int a, int b)
{
	if (a < 0 || b < 0)
		return LWIP_MAX(a, b);
	return LWIP_MIN(a, b);
}

static void fill_waits(struct waits *waits)
{
	waits->n = 0;
	add_wait(waits, server.wake, POLLIN, NULL);
	add_wait(waits, server.socket.fd, POLLIN, NULL);
	add_wait(waits, server.http, POLLIN, NULL);
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &server.control[i], *w = &server.web[i];

		add_wait(waits, c->fd, c->out ? POLLOUT : POLLIN, c);
		add_wait(waits, w->fd, w->out ? POLLOUT : POLLIN, w);
	}
}

static void serve_fd(const struct pollfd *fd, struct client *client)
{
	if (!client && fd->fd == server.socket.fd)
		greet_client(fd->fd);
	else if (!client && fd->fd == server.http)
		take_client(fd->fd, server.web);
	else if (client && client->fd == fd->fd) /* not one that gave way */
		(client >= server.web ? serve_page
				      : serve_message)(client, fd->revents);
}

static void *run_server(void *arg)
{
	static struct waits waits;

	while (!atomic_load(&server.stop)) {
		int64_t now = net_control_now_ms();
		int timeout = pick_sooner_ms(expire_clients(now),
					     net_traces_expire(now));

		fill_waits(&waits);
		if (poll(waits.fds, waits.n, timeout) <= 0)
			continue;
		/* Listeners come first in waits, and last here, so that a
		 * client with a request does not count as silent. */
		for (unsigned i = waits.n; --i > 0;)
			if (waits.fds[i].revents)
				serve_fd(&waits.fds[i], waits.clients[i]);
	}
	return NULL;
}

/* ---- opening ---- */

static void close_http(void)
{
	if (server.http >= 0)
		close(server.http);
	server.http = -1;
}

static const char *bind_hint(int err)
{
	switch (err) {
	case EADDRINUSE:
		return "another program listens there ('ss -ltnp' names it): "
		       "choose another port for one of the two";
	case EACCES:
		return "ports below 1024 need CAP_NET_BIND_SERVICE: choose a "
		       "higher one, as in 127.0.0.1:9464";
	default:
		return "expected an address of the kernel, as in "
		       "127.0.0.1:9464, or an address of --addr";
	}
}

/*
 * Listens on an address of the kernel's. After an error server.http is -1 or a
 * socket that does not listen.
 */
static int open_http(const struct net_addr *addr, char *err, size_t err_len)
{
	struct sockaddr_storage storage = {0};
	struct sockaddr_in *in4 = (void *)&storage;
	struct sockaddr_in6 *in6 = (void *)&storage;
	char text[NET_ADDR_TEXT_MAX];
	int on = 1, rc;

	if (addr->family == 4) {
		in4->sin_family = AF_INET;
		in4->sin_port = htons(addr->port);
		memcpy(&in4->sin_addr, addr->ip, 4);
	} else {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(addr->port);
		memcpy(&in6->sin6_addr, addr->ip, 16);
	}
	server.http = socket(storage.ss_family,
			     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server.http >= 0) {
		setsockopt(server.http, SOL_SOCKET, SO_REUSEADDR, &on,
			   sizeof(on));
		if (bind(server.http, (void *)&storage, sizeof(storage)) == 0 &&
		    listen(server.http, (int)CLIENTS) == 0)
			return 0;
	}
	rc = -errno;
	snprintf(err, err_len, "--metrics %s: %s; %s",
		 net_addr_format(addr, text, sizeof(text)), strerror(-rc),
		 bind_hint(-rc));
	return rc;
}

static bool is_web_at(const struct net_addr *addr)
{
	return addr->port == server.web_at.port &&
	       addr->family == server.web_at.family &&
	       memcmp(addr->ip, server.web_at.ip, sizeof(addr->ip)) == 0;
}

/* Returns an error of a shard as an answer. */
static cJSON *shard_error(unsigned shard, int err, const struct net_addr *addr)
{
	char text[NET_ADDR_TEXT_MAX];

	if (err != -EADDRINUSE)
		return net_control_ask_error(shard, err);
	return net_control_error("%s: shard %u listens there already; choose "
				 "another port",
				 net_addr_format(addr, text, sizeof(text)),
				 shard);
}

/* Moves the page to the stack's network, or to another address there. */
static cJSON *move_to_stack(const struct net_addr *addr)
{
	unsigned shard;
	int err = net_scrape_move(addr, server.web_own ? &server.web_at : NULL,
				  &shard);

	if (err < 0)
		return shard_error(shard, err, addr);
	close_http();
	server.web_own = true;
	return NULL;
}

/*
 * Listens on an address of the kernel's instead of the one so far. If both have
 * the same port, the one so far is closed first, because 0.0.0.0 and 127.0.0.1
 * exclude each other, and is opened again if that does not help.
 */
static int replace_http(const struct net_addr *addr, char *why, size_t len)
{
	bool closes = server.http >= 0 && addr->port == server.web_at.port;
	char other[8];
	int old, rc;

	if (closes)
		close_http();
	old = server.http;
	rc = open_http(addr, why, len);
	if (rc < 0) {
		close_http();
		server.http = old;
		if (closes &&
		    open_http(&server.web_at, other, sizeof(other)) < 0) {
			close_http();
			server.web_at.port = 0;
		}
	} else if (old >= 0) {
		close(old);
	}
	return rc;
}

/* Moves the page to the kernel's network, or to nowhere. */
static cJSON *move_to_kernel(const struct net_addr *addr)
{
	unsigned shard;
	char why[256];
	int rc;

	if (!addr->port)
		close_http();
	else if (replace_http(addr, why, sizeof(why)) < 0)
		return net_control_error("%s", why);
	rc = server.web_own ? net_scrape_shut(&shard) : 0;
	server.web_own = rc < 0;
	return rc < 0 ? shard_error(shard, rc, addr) : NULL;
}

static cJSON *move_web(const struct net_addr *addr)
{
	int own = addr->port ? net_scrape_is_own_now(addr) : 0;
	cJSON *wrong = own < 0	 ? net_control_ask_error(0, own)
		       : own > 0 ? move_to_stack(addr)
				 : move_to_kernel(addr);

	if (!wrong)
		server.web_at = *addr;
	return wrong;
}

/* Returns where the page is; a parameter moves it first. */
static cJSON *web_address(const char *params)
{
	char text[NET_ADDR_TEXT_MAX];
	struct net_addr at = {0};
	cJSON *to = NULL;

	if (params && strcmp(params, "off") != 0 &&
	    (net_addr_parse(params, -1, &at) < 0 || !at.port))
		return net_control_error("'%s': expected an address and a "
					 "port, as in 127.0.0.1:9464, or off",
					 params);
	if (params && !net_ask_shards())
		return net_control_ask_error(0, -EAGAIN);
	at.prefix_len = 0;
	if (params && !is_web_at(&at))
		to = move_web(&at);
	if (to)
		return to;
	to = cJSON_CreateObject();
	cJSON_AddStringToObject(
		to, "metrics",
		server.web_at.port
			? net_addr_format(&server.web_at, text, sizeof(text))
			: "off");
	return to;
}

const struct net_command net_server_commands[] = {
	{"/coronet/metrics.address",
	 "Where the page for Prometheus is. Parameter: ADDRESS:PORT moves the "
	 "page, off ends it",
	 web_address},
	{0},
};

/*
 * A path below $RUNTIME_DIRECTORY, of which systemd may name several, where
 * dpdk-telemetry.py looks as well; false: it is not set.
 */
static bool default_path(char *path, size_t len)
{
	const char *folder = getenv("RUNTIME_DIRECTORY");
	char made[sizeof(server.socket.path)];
	int n;

	if (!folder || !*folder)
		return false;
	n = snprintf(path, len, "%.*s/" DEFAULT_IN "/" DEFAULT_AT,
		     (int)strcspn(folder, ":"), folder);
	if (n < 0 || (size_t)n >= len)
		return false;
	snprintf(made, sizeof(made), "%.*s/dpdk", (int)strcspn(folder, ":"),
		 folder);
	mkdir(made, 0700);
	strncat(made, "/rte", sizeof(made) - strlen(made) - 1);
	mkdir(made, 0700);
	return true;
}

/* If the default path cannot be used, logs that and lets the program start. */
static int open_control(struct net_opts *opts)
{
	char path[sizeof(server.socket.path)];
	int err;

	if (opts->control && strcmp(opts->control, "off") == 0)
		return 0;
	if (opts->control)
		return net_socket_open(opts->control, &server.socket,
				       opts->error, sizeof(opts->error));
	if (!default_path(path, sizeof(path)))
		return 0;
	err = net_socket_open(path, &server.socket, opts->error,
			      sizeof(opts->error));
	if (err < 0) {
		net_log_of(NET_COMPONENT_CONTROL, NET_LOG_WARNING,
			   "coronet: no control socket: %s", opts->error);
		opts->error[0] = '\0';
	}
	return 0;
}

static int start_thread(void)
{
	sigset_t all, old;
	int err;

	for (unsigned i = 0; i < CLIENTS; i++)
		server.control[i].fd = server.web[i].fd = -1;
	atomic_store(&server.stop, false);
	server.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server.wake < 0)
		return -errno;
	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* that of --seccomp names a call */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&server.thread, NULL, run_server, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	server.running = err == 0;
	if (err)
		close(server.wake);
	else
		pthread_setname_np(server.thread, "control");
	return -err;
}

static void close_listeners(void)
{
	net_socket_close(&server.socket);
	close_http();
}

int net_control_open(struct net_opts *opts)
{
	int err = open_control(opts);

	net_scrape_begin(opts);
	net_rings_begin(opts);
	server.web_at = opts->metrics;
	server.web_at.prefix_len = 0;
	server.web_own = net_scrape_is_own(&opts->metrics);
	if (err == 0 && opts->metrics.port && !server.web_own)
		err = open_http(&opts->metrics, opts->error,
				sizeof(opts->error));
	if (err == 0 && (server.socket.fd >= 0 || server.http >= 0))
		err = start_thread();
	if (err < 0)
		close_listeners();
	return err;
}

int net_control_ready(struct net_opts *opts, unsigned n_shards)
{
	bool ours = server.web_own; /* the thread's, once it may ask */

	net_ask_open(n_shards);
	return ours ? net_scrape_open(opts, n_shards) : 0;
}

void net_control_close(void)
{
	net_ask_shut();
	if (server.running) {
		atomic_store(&server.stop, true);
		if (write(server.wake, &(uint64_t){1}, 8) < 0) {
			/* full: then it is awake already */
		}
		pthread_join(server.thread, NULL);
		close(server.wake);
		server.running = false;
		for (unsigned i = 0; i < CLIENTS; i++) {
			drop_client(&server.control[i]);
			drop_client(&server.web[i]);
		}
	}
	close_listeners();
	net_traces_forget();
	net_commands_forget();
	net_metrics_forget();
	net_health_forget();
}
