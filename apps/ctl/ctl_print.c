/* Prints JSON answers, as they are or as tables. */
#include "apps/ctl/ctl_print.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static char *format_bytes(double n, char *text, size_t len)
{
	static const char units[] = " KMGTP";
	unsigned i = 0;

	for (; n >= 1024 && units[i + 1]; i++)
		n /= 1024;
	if (i == 0)
		snprintf(text, len, "%.0f", n);
	else
		snprintf(text, len, "%.1f%c", n, units[i]);
	return text;
}

static char *format_ms(double ms, char *text, size_t len)
{
	uint64_t s = (uint64_t)(ms / 1000);
	unsigned long long d = s / 86400, h = s / 3600, m = s / 60;

	if (ms < 10000)
		snprintf(text, len, "%.1fs", ms / 1000);
	else if (s < 60)
		snprintf(text, len, "%llus", (unsigned long long)s);
	else if (s < 3600)
		snprintf(text, len, "%llum%02llus", m,
			 (unsigned long long)(s % 60));
	else if (s < 86400)
		snprintf(text, len, "%lluh%02llum", h, m % 60);
	else
		snprintf(text, len, "%llud%02lluh", d, h % 24);
	return text;
}

/* Formats waits as "conn in net_recv", one after another. */
static char *format_waits(const cJSON *waits, char *text, size_t len)
{
	const cJSON *wait;
	size_t used = 0;

	snprintf(text, len, "-");
	cJSON_ArrayForEach(wait, waits)
	{
		const char *coro = cJSON_GetStringValue(
			cJSON_GetObjectItem(wait, "coroutine"));
		const char *in =
			cJSON_GetStringValue(cJSON_GetObjectItem(wait, "in"));

		if (used < len)
			used += (size_t)snprintf(
				text + used, len - used, "%s%s%s%s",
				used ? ", " : "", coro && *coro ? coro : "",
				coro && *coro ? " in " : "in ", in ? in : "?");
	}
	return text;
}

char *ctl_format(const cJSON *value, enum ctl_form form, char *text, size_t len)
{
	snprintf(text, len, "-");
	if (!value)
		return text;
	switch (form) {
	case CTL_TEXT:
		if (cJSON_IsString(value) && *value->valuestring)
			snprintf(text, len, "%s", value->valuestring);
		return text;
	case CTL_NUMBER:
		snprintf(text, len, "%.0f", value->valuedouble);
		return text;
	case CTL_BYTES:
		return format_bytes(value->valuedouble, text, len);
	case CTL_MS:
		return format_ms(value->valuedouble, text, len);
	case CTL_BOOL:
		snprintf(text, len, "%s", cJSON_IsTrue(value) ? "yes" : "no");
		return text;
	case CTL_WAITS:
		return format_waits(value, text, len);
	}
	return text;
}

void ctl_print_head(FILE *out, const struct ctl_column *columns)
{
	for (const struct ctl_column *c = columns; c->title; c++)
		fprintf(out, "%s%*s", c == columns ? "" : "  ",
			c[1].title || c->width > 0 ? c->width : 0, c->title);
	fputc('\n', out);
}

void ctl_print_row(FILE *out, const struct ctl_column *columns,
		   const cJSON *row)
{
	char text[256];

	for (const struct ctl_column *c = columns; c->title; c++)
		fprintf(out, "%s%*s", c == columns ? "" : "  ",
			c[1].title || c->width > 0 ? c->width : 0,
			ctl_format(cJSON_GetObjectItem(row, c->key), c->form,
				   text, sizeof(text)));
	fputc('\n', out);
}

double ctl_number(const cJSON *object, const char *key)
{
	const cJSON *value = cJSON_GetObjectItem(object, key);

	return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

/* Prints, as ss does, parts of the time in which bytes were in flight. */
static void print_limits(FILE *out, const cJSON *row)
{
	double busy = ctl_number(row, "busy_us");
	double rwnd = ctl_number(row, "rwnd_limited_us");
	double sndbuf = ctl_number(row, "sndbuf_limited_us");

	if (busy <= 0)
		return;
	fprintf(out, " busy:%.0fms", busy / 1000);
	if (rwnd > 0)
		fprintf(out, " rwnd_limited:%.0fms(%.1f%%)", rwnd / 1000,
			100 * rwnd / busy);
	if (sndbuf > 0)
		fprintf(out, " sndbuf_limited:%.0fms(%.1f%%)", sndbuf / 1000,
			100 * sndbuf / busy);
}

static void print_counts(FILE *out, const cJSON *row)
{
	if (!cJSON_IsTrue(cJSON_GetObjectItem(row, "counted"))) {
		fputs(" (not counted: --counted-conns)", out);
		return;
	}
	fprintf(out,
		" retrans:%.0f rtos:%.0f dupacks:%.0f ooo:%.0f bytes_in:%.0f "
		"bytes_out:%.0f",
		ctl_number(row, "retransmits"), ctl_number(row, "rtos"),
		ctl_number(row, "dup_acks"), ctl_number(row, "out_of_order"),
		ctl_number(row, "rx_bytes"), ctl_number(row, "tx_bytes"));
	print_limits(out, row);
}

void ctl_print_conn_more(FILE *out, const cJSON *row)
{
	const char *cc = cJSON_GetStringValue(cJSON_GetObjectItem(row, "cc"));

	fprintf(out,
		"\t%s rtt:%.3f/%.3f rto:%.0f mss:%.0f cwnd:%.0f snd_wnd:%.0f "
		"rcv_wnd:%.0f unacked:%.0f",
		cc ? cc : "?", ctl_number(row, "rtt_us") / 1000,
		ctl_number(row, "rttvar_us") / 1000,
		ctl_number(row, "rto_us") / 1000, ctl_number(row, "mss"),
		ctl_number(row, "cwnd"), ctl_number(row, "snd_wnd"),
		ctl_number(row, "rcv_wnd"), ctl_number(row, "unacked"));
	if (ctl_number(row, "pacing_rate") > 0)
		fprintf(out, " pacing:%.0fB/s", ctl_number(row, "pacing_rate"));
	print_counts(out, row);
	fputc('\n', out);
}

void ctl_print_object(FILE *out, const char *prefix, const cJSON *object)
{
	const cJSON *item;
	char name[256], number[16];
	unsigned i = 0;

	cJSON_ArrayForEach(item, object)
	{
		snprintf(number, sizeof(number), "%u", i++);
		snprintf(name, sizeof(name), "%s%s%s", prefix,
			 *prefix ? "." : "",
			 item->string ? item->string : number);
		if (cJSON_IsObject(item) || cJSON_IsArray(item))
			ctl_print_object(out, name, item);
		else if (cJSON_IsString(item))
			fprintf(out, "%-28s %s\n", name, item->valuestring);
		else if (cJSON_IsNumber(item))
			fprintf(out, "%-28s %.0f\n", name, item->valuedouble);
		else
			fprintf(out, "%-28s %s\n", name,
				cJSON_IsTrue(item) ? "yes" : "no");
	}
}

/* ---- JSON ---- */

#define DIGITS_MAX 24u

/* Whole numbers are printed in full: cJSON gives those that end in zeros an
 * exponent. */
static void keep_digits(cJSON *value)
{
	double number = cJSON_IsNumber(value) ? value->valuedouble : 0;
	cJSON *child;

	if (number > INT_MAX && number < 1e18 &&
	    number == (double)(int64_t)number) {
		value->valuestring = cJSON_malloc(DIGITS_MAX);
		if (value->valuestring) {
			snprintf(value->valuestring, DIGITS_MAX, "%.0f",
				 number);
			value->type = cJSON_Raw;
		}
	}
	cJSON_ArrayForEach(child, value) keep_digits(child);
}

static char *json_text(const cJSON *value, bool formatted)
{
	cJSON *copy = cJSON_Duplicate(value, true);
	char *text;

	if (!copy)
		return NULL;
	keep_digits(copy);
	text = formatted ? cJSON_Print(copy) : cJSON_PrintUnformatted(copy);
	cJSON_Delete(copy);
	return text;
}

char *ctl_json_line(const cJSON *value)
{
	return json_text(value, false);
}

void ctl_print_json(const cJSON *value)
{
	char *text = json_text(value, true);

	if (text)
		puts(text);
	free(text);
}
