/* The output of coronet-ctl: tables from JSON. */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include <cjson/cJSON.h>

/* How a value is shown. */
enum ctl_form {
	CTL_TEXT,
	CTL_NUMBER,
	CTL_BYTES, /* 1.5M */
	CTL_MS,	   /* milliseconds, as 12s or 3h05m */
	CTL_BOOL,  /* yes, or nothing */
	CTL_WAITS, /* "conn in net_recv" */
};

struct ctl_column {
	const char *title, *key;
	enum ctl_form form;
	int width; /* at least; of a text below 0: to the left */
};

/* Formats a value for output; "-" for none. Returns text. */
char *ctl_format(const cJSON *value, enum ctl_form form, char *text,
		 size_t len);
void ctl_print_head(FILE *out, const struct ctl_column *columns);
void ctl_print_row(FILE *out, const struct ctl_column *columns,
		   const cJSON *row);
/* The second line of a connection, as `ss -ti` has it. */
void ctl_print_conn_more(FILE *out, const cJSON *row);
/*
 * Prints an object, one member per line; members of inner objects are prefixed
 * with the inner object's name.
 */
void ctl_print_object(FILE *out, const char *prefix, const cJSON *object);

void ctl_print_json(const cJSON *value);
/* Returns the text on a line, to be freed; NULL without memory. */
char *ctl_json_line(const cJSON *value);
