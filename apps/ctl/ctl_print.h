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
	int width; /* at least; below 0: text is aligned to the left */
};

/* Returns a member's number; 0: it has none. */
double ctl_number(const cJSON *object, const char *key);
/* Formats a value for output; "-" for none. Returns text. */
char *ctl_format(const cJSON *value, enum ctl_form form, char *text,
		 size_t len);
void ctl_print_head(FILE *out, const struct ctl_column *columns);
void ctl_print_row(FILE *out, const struct ctl_column *columns,
		   const cJSON *row);
/* Prints the second line of a connection, like `ss -ti`. */
void ctl_print_conn_more(FILE *out, const cJSON *row);
/*
 * Prints an object, one member per line; members of inner objects are prefixed
 * with the inner object's name.
 */
void ctl_print_object(FILE *out, const char *prefix, const cJSON *object);

void ctl_print_json(const cJSON *value);
/* Returns JSON in one line, to be freed by the caller; NULL: no memory. */
char *ctl_json_line(const cJSON *value);
