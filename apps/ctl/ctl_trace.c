/*
 * coronet-ctl trace: what happens to connections, line by line as it happens.
 *
 * The program reports what its rings hold when it is asked. This process asks
 * fifty times a second, and at once if there is more to report. When this
 * process ends, for any reason, the program stops watching.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "apps/common/sys.h"
#include "apps/ctl/coronet_ctl_priv.h"
#include "apps/ctl/ctl_print.h"

#define LOOK_NS 20000000L

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signo)
{
	interrupted = 1;
}

/* A signal ends a sleep, or makes another call fail: none is restarted. */
static void end_by_signals(void)
{
	struct sigaction action = {.sa_handler = on_interrupt};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static const char *get_text(const cJSON *event, const char *key)
{
	const char *value =
		cJSON_GetStringValue(cJSON_GetObjectItem(event, key));

	return value ? value : "";
}

/* ---- printing an event ---- */

/* The time of day, as tcpdump and tshark -t ad show it. */
static void print_time(double us)
{
	time_t seconds = (time_t)(us / 1e6);
	struct tm tm;
	char clock[16];

	localtime_r(&seconds, &tm);
	strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	printf("%s.%06.0f", clock, us - (double)seconds * 1e6);
}

/* "seq 1:65 ack 1 wnd 64256 len 64", as tcpdump has it. */
static void print_segment(const cJSON *event, bool in)
{
	double seq = ctl_number(event, "seq"), len = ctl_number(event, "len");

	printf("[%s] seq %.0f", get_text(event, "flags"), seq);
	if (len > 0)
		printf(":%.0f", seq + len);
	if (cJSON_GetObjectItem(event, "ack"))
		printf(" ack %.0f", ctl_number(event, "ack"));
	printf(" wnd %.0f len %.0f", ctl_number(event, "wnd"), len);
	if (ctl_number(event, "sacks") > 0)
		printf(" sacks %.0f", ctl_number(event, "sacks"));
	if (!in)
		printf(" cwnd %.0f", ctl_number(event, "cwnd"));
	if (*get_text(event, "resent"))
		printf(" (sent again: %s)", get_text(event, "resent"));
	if (*get_text(event, "note"))
		printf(" (%s)", get_text(event, "note"));
}

static void print_call(const cJSON *event)
{
	printf("%s", get_text(event, "call"));
	if (ctl_number(event, "bytes") > 0)
		printf(" %.0f bytes", ctl_number(event, "bytes"));
	if (*get_text(event, "coroutine"))
		printf(" (%s)", get_text(event, "coroutine"));
}

static void print_done(const cJSON *event)
{
	printf("%s = ", get_text(event, "call"));
	if (*get_text(event, "error"))
		printf("%s", get_text(event, "error"));
	else
		printf("%.0f", ctl_number(event, "result"));
	printf(" after %.3f ms", ctl_number(event, "waited_us") / 1000);
	if (*get_text(event, "coroutine"))
		printf(" (%s)", get_text(event, "coroutine"));
}

static void print_details(const cJSON *event, const char *kind)
{
	if (strcmp(kind, "in") == 0 || strcmp(kind, "out") == 0)
		print_segment(event, kind[0] == 'i');
	else if (strcmp(kind, "call") == 0)
		print_call(event);
	else if (strcmp(kind, "done") == 0)
		print_done(event);
	else if (strcmp(kind, "cwnd") == 0)
		printf("%.0f, was %.0f, ssthresh %.0f: %s",
		       ctl_number(event, "cwnd"), ctl_number(event, "was"),
		       ctl_number(event, "ssthresh"), get_text(event, "why"));
	else if (strcmp(kind, "timer") == 0)
		printf("%s, %.0f in a row", get_text(event, "timer"),
		       ctl_number(event, "times"));
	else if (strcmp(kind, "state") == 0)
		printf("%s, was %s", get_text(event, "state"),
		       get_text(event, "was"));
	else if (strcmp(kind, "missed") == 0)
		printf("%.0f events", ctl_number(event, "events"));
	else if (strcmp(kind, "begin") == 0)
		printf("%s, %s, ID %s", get_text(event, "how"),
		       get_text(event, "local"), get_text(event, "id"));
	else if (strcmp(kind, "end") == 0)
		printf("%s", get_text(event, "why"));
	else
		printf("%s, %.0f bytes", get_text(event, "what"),
		       ctl_number(event, "bytes"));
}

static void print_event(const struct ctl *ctl, const cJSON *event)
{
	const char *kind = get_text(event, "kind");
	char *json;

	if (ctl->json) {
		json = ctl_json_line(event);
		puts(json ? json : "null");
		free(json);
		return;
	}
	print_time(ctl_number(event, "time_us"));
	printf(" %s %-11s ", get_text(event, "peer"), kind);
	print_details(event, kind);
	putchar('\n');
}

/* ---- following ---- */

struct follow {
	uint64_t left;	    /* events to print */
	bool found;	    /* one has been printed */
	bool ended;	    /* the connection asked for by its ID has ended */
	bool reported_none; /* said that there is none yet */
};

/* Prints a page of events. Returns whether to go on. */
static bool print_all(const struct ctl *ctl, const cJSON *page,
		      struct follow *f)
{
	const cJSON *event;

	cJSON_ArrayForEach(event, cJSON_GetObjectItem(page, "events"))
	{
		if (f->left == 0)
			break;
		print_event(ctl, event);
		f->found = true;
		f->left--;
	}
	f->ended = cJSON_IsTrue(cJSON_GetObjectItem(page, "ended"));
	return fflush(stdout) == 0 && f->left > 0;
}

/*
 * Prints, on stderr, how many events were missed and how many connections are
 * not traced.
 */
static void print_summary(const cJSON *page, struct follow *f)
{
	if (ctl_number(page, "missed") > 0)
		fprintf(stderr,
			"coronet-ctl: %.0f events were missed: their "
			"connections ended, and other connections needed the "
			"memory\n",
			ctl_number(page, "missed"));
	if (ctl_number(page, "without") > 0)
		fprintf(stderr,
			"coronet-ctl: %.0f more connections match than can be "
			"traced at a time; name one, or trace later "
			"connections from their beginning: coronet-ctl set "
			"trace.conns N\n",
			ctl_number(page, "without"));
	if (f->found || f->reported_none ||
	    cJSON_IsTrue(cJSON_GetObjectItem(page, "more")))
		return;
	fprintf(stderr,
		"coronet-ctl: no such connection yet; waiting for one\n");
	f->reported_none = true;
}

/* Sends PEER first, then the filters. */
static int begin_trace(struct ctl *ctl)
{
	char params[640];
	cJSON *answer;

	snprintf(params, sizeof(params), "%s%s%s",
		 ctl->n_words > 1 ? ctl->words[1] : "",
		 ctl->n_words > 1 && *ctl->filter ? "," : "", ctl->filter);
	answer = ctl_ask(&ctl->client, "/coronet/trace.start", params);
	cJSON_Delete(answer);
	return answer ? 0 : ctl_fail(ctl);
}

static int follow_trace(struct ctl *ctl, struct follow *f, int64_t until_ns)
{
	static const struct timespec pause = {.tv_nsec = LOOK_NS};

	while (!interrupted && !f->ended) {
		cJSON *page = ctl_ask(&ctl->client, "/coronet/trace", "");
		bool more = cJSON_IsTrue(cJSON_GetObjectItem(page, "more"));
		bool goes_on;

		if (!page)
			return interrupted ? 0 : ctl_fail(ctl);
		goes_on = print_all(ctl, page, f);
		print_summary(page, f);
		cJSON_Delete(page);
		if (!goes_on || sys_now_ns() >= until_ns)
			break;
		if (!more)
			nanosleep(&pause, NULL);
	}
	return 0;
}

int ctl_run_trace(struct ctl *ctl, const struct command *command)
{
	struct follow f = {.left = ctl->count ? ctl->count : UINT64_MAX};
	int status;

	if (ctl->n_words < 2 ? !*ctl->filter
			     : !*ctl->words[1] || strchr(ctl->words[1], ',')) {
		fprintf(stderr,
			"coronet-ctl: trace: expected a PEER, as in "
			"10.9.0.2, 10.9.0.2:4711 or the ID of a connection, or "
			"--port, --state or --handler\n");
		return 2;
	}
	end_by_signals();
	status = begin_trace(ctl);
	if (status)
		return status;
	return follow_trace(
		ctl, &f,
		ctl->seconds ? sys_now_ns() + (int64_t)ctl->seconds * 1000000000
			     : INT64_MAX);
}
