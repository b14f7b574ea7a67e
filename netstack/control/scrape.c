/*
 * The page for Prometheus on the stack's own network, if --metrics is an
 * address of the stack.
 *
 * Every shard listens there, with one coroutine per client, and with the bounds
 * of the kernel's network: 16 clients per shard, one request and one response
 * each, five seconds in all. A further client displaces the one whose request
 * has been awaited longest. Writing the page blocks on a request to every
 * shard, so a thread of net_offload() does it.
 */
#include "netstack/control/control_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One client; not on a stack, as the thread that writes the page reads it. */
struct scrape {
	struct net_conn *conn;
	struct scrape *next; /* the next that has sent no request yet */
	char *out;	     /* the answer */
	size_t out_len, in_len;
	char in[NET_HTTP_MAX_INPUT + 1];
};

/* Each shard's listener and clients, which no other shard uses. */
static struct {
	struct net_listener *listener;
	struct scrape *silent; /* without a request; the oldest is first */
	unsigned clients;
} pages[NET_MAX_SHARDS];

/* The stack's own addresses, as opts had them. */
static struct {
	unsigned n;
	struct net_addr all[NET_MAX_ADDRS];
} ours;

void net_scrape_begin(const struct net_opts *opts)
{
	ours.n = opts->n_addrs;
	memcpy(ours.all, opts->addrs, ours.n * sizeof(ours.all[0]));
	memset(pages, 0, sizeof(pages));
}

bool net_scrape_is_own(const struct net_addr *at)
{
	size_t bytes = at->family == 4 ? 4 : 16;

	for (unsigned i = 0; at->port && i < ours.n; i++)
		if (ours.all[i].family == at->family &&
		    ours.all[i].prefix_len && /* 0: leased by DHCP */
		    memcmp(ours.all[i].ip, at->ip, bytes) == 0)
			return true;
	return false;
}

/* ---- slots for clients ---- */

static void remove_silent(struct scrape *s)
{
	struct scrape **at = &pages[net_here()->shard].silent;

	while (*at && *at != s)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
}

/* The oldest silent client makes room. If all others are being answered, there
 * is one more than the limit: the listener's is twice as high. */
static void add_silent(struct scrape *s)
{
	unsigned shard = net_here()->shard;
	struct scrape *oldest = pages[shard].silent;
	struct scrape **at = &pages[shard].silent;

	if (++pages[shard].clients > NET_HTTP_CLIENTS && oldest) {
		remove_silent(oldest);
		net_cancel(oldest->conn);
	}
	while (*at)
		at = &(*at)->next;
	*at = s;
}

static void end_client(struct scrape *s)
{
	remove_silent(s);
	pages[net_here()->shard].clients--;
}

/* ---- a client ---- */

static void *answer_request(void *arg)
{
	struct scrape *s = arg;

	s->out = net_http_answer_alone(s->in, s->in_len, &s->out_len);
	return NULL;
}

/* Reads until the request is whole, or too long to be one. */
static int read_request(struct net_conn *conn, struct scrape *s)
{
	while (s->in_len < NET_HTTP_MAX_INPUT &&
	       !memmem(s->in, s->in_len, "\r\n\r\n", 4)) {
		long n = net_recv(conn, s->in + s->in_len,
				  NET_HTTP_MAX_INPUT - s->in_len);

		if (n <= 0)
			return n < 0 ? (int)n : -ECONNRESET;
		s->in_len += (size_t)n;
	}
	s->in[s->in_len] = '\0';
	return 0;
}

static int serve_client(struct net_conn *conn, struct scrape *s,
			int64_t until_ns)
{
	int err = read_request(conn, s);
	long n;

	remove_silent(s);
	if (err == 0)
		err = net_offload(answer_request, s, NULL, until_ns);
	if (err < 0 || !s->out)
		return err < 0 ? err : -ENOMEM;
	n = net_send_all(conn, s->out, s->out_len);
	return n < 0 ? (int)n : 0;
}

static void serve_scraper(struct net_conn *conn, void *arg)
{
	struct scrape *s = calloc(1, sizeof(*s));
	int64_t until_ns = net_clock_ns() + NET_HTTP_MS * INT64_C(1000000);
	int err = -ENOMEM;

	net_set_read_deadline(conn, until_ns);
	net_set_write_deadline(conn, until_ns);
	if (s) {
		s->conn = conn;
		add_silent(s);
		err = serve_client(conn, s, until_ns);
		end_client(s);
		free(s->out);
		free(s);
	}
	if (err < 0)
		net_abort(conn);
	else
		net_close_wait(conn, until_ns);
}

/* ---- listening: on each shard ---- */

struct place {
	struct net_addr at;
	int err;
};

static bool listen_step(void *data)
{
	/* of all shards; some are about to give way */
	unsigned most = 2 * NET_HTTP_CLIENTS * net_here()->n_shards;
	struct net_limits limits = {.clients = most,
				    .clients_per_source = most};
	struct net_listener **at = &pages[net_here()->shard].listener;
	struct net_listener *listener;
	struct place *place = data;

	place->err =
		net_listen(net_here(), &place->at, NET_HTTP_CLIENTS, &listener);
	if (place->err < 0)
		return true;
	net_listener_limit(listener, &limits);
	net_listener_set_name(listener, "metrics");
	place->err = net_listener_serve(listener, serve_scraper, NULL);
	if (place->err < 0) {
		net_listener_close(listener);
		return true;
	}
	net_listener_close(*at);
	*at = listener;
	return true;
}

static bool close_step(void *data)
{
	net_listener_close(pages[net_here()->shard].listener);
	pages[net_here()->shard].listener = NULL;
	return true;
}

/* Called directly before the shards run; later they are asked. */
static void *listen_called(void *arg)
{
	listen_step(arg);
	return NULL;
}

int net_scrape_open(struct net_opts *opts, unsigned n_shards)
{
	struct place place = {.at = opts->metrics};
	char text[NET_ADDR_TEXT_MAX];
	int err = 0;

	place.at.prefix_len = 0;
	for (unsigned i = 0; err == 0 && i < n_shards; i++) {
		err = net_call(i, listen_called, &place, NULL);
		if (err == 0)
			err = place.err;
	}
	if (err < 0)
		snprintf(opts->error, sizeof(opts->error), "--metrics %s: %s",
			 net_addr_format(&opts->metrics, text, sizeof(text)),
			 strerror(-err));
	return err;
}

static int ask_shard(unsigned shard, net_ask_step step,
		     const struct net_addr *at)
{
	struct net_ask *ask = net_ask_new(step, sizeof(struct place));
	struct place *place;
	int err;

	if (!ask)
		return -ENOMEM;
	place = (void *)ask->data;
	if (at)
		place->at = *at;
	err = net_ask_run(ask, shard);
	if (err == 0)
		err = place->err;
	net_ask_put(ask);
	return err;
}

static bool local_step(void *data)
{
	struct place *place = data;

	place->err = net_is_local(net_here(), &place->at);
	return true;
}

int net_scrape_is_own_now(const struct net_addr *at)
{
	return ask_shard(0, local_step, at);
}

int net_scrape_shut(unsigned *shard)
{
	unsigned n = net_ask_shards(), s = 0;
	int err = 0;

	for (; err == 0 && s < n; s += err == 0)
		err = ask_shard(s, close_step, NULL);
	*shard = s;
	return err;
}

int net_scrape_move(const struct net_addr *at, const struct net_addr *before,
		    unsigned *shard)
{
	unsigned n = net_ask_shards(), s = 0;
	int err = n ? 0 : -EAGAIN;

	for (; err == 0 && s < n; s += err == 0)
		err = ask_shard(s, listen_step, at);
	*shard = s;
	while (err < 0 && s--)
		ask_shard(s, before ? listen_step : close_step, before);
	return err;
}
