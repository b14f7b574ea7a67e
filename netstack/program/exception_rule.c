/*
 * Parses the option --exception.
 */
#include "netstack/program/exception_rule.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static int
refuse(char *err, size_t err_len, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(err, err_len, format, ap);
	va_end(ap);
	return -EINVAL;
}

/* Reads a decimal number up to max at *at, which moves behind it. */
static bool read_number(const char **at, unsigned long max, unsigned long *out)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	*out = strtoul(*at, &end, 10);
	*at = end;
	return *out <= max;
}

/* "22+179+33434-33534" */
static bool read_ports(const char *at, struct net_ports *ports)
{
	for (;;) {
		unsigned long first, last;

		if (!read_number(&at, 65535, &first) || first == 0)
			return false;
		last = first;
		if (*at == '-') {
			at++;
			if (!read_number(&at, 65535, &last) || last < first)
				return false;
		}
		for (; first <= last; first++)
			ports->bits[first / 8] |= (uint8_t)(1u << first % 8);
		if (*at == '\0')
			return true;
		if (*at++ != '+')
			return false;
	}
}

static bool take_ports(const char *value, struct net_ports *out)
{
	bool others = *value == '!';

	memset(out, 0, sizeof(*out));
	if (strcmp(value, "none") == 0)
		return true;
	if (strcmp(value, "all") == 0)
		others = true;
	else if (!read_ports(value + others, out))
		return false;
	for (size_t i = 0; others && i < sizeof(out->bits); i++)
		out->bits[i] = (uint8_t)~out->bits[i];
	return true;
}

/* Takes one of two words; *out says whether it is the second. */
static bool take_word(const char *value, const char *first, const char *second,
		      bool *out)
{
	*out = strcmp(value, second) == 0;
	return *out || strcmp(value, first) == 0;
}

static bool take_rate(const char *value, unsigned *out)
{
	unsigned long n;

	if (!read_number(&value, NET_EXCEPTION_RATE_MAX, &n) || *value || !n)
		return false;
	*out = (unsigned)n;
	return true;
}

static int take_key(const char *text, const char *key, const char *value,
		    struct net_exception_rule *rule, char *err, size_t err_len)
{
	const char *expected;

	if (strcmp(key, "tcp") == 0 || strcmp(key, "udp") == 0) {
		if (take_ports(value, *key == 't' ? &rule->tcp : &rule->udp))
			return 0;
		expected = "all, none, or ports from 1 to 65535 as in "
			   "22+179+33434-33534, with a ! before them for all "
			   "others";
	} else if (strcmp(key, "echo") == 0) {
		if (take_word(value, "stack", "kernel", &rule->echo))
			return 0;
		expected = "stack or kernel";
	} else if (strcmp(key, "other") == 0) {
		if (take_word(value, "on", "off", &rule->other_off))
			return 0;
		expected = "on or off";
	} else if (strcmp(key, "addr") == 0) {
		if (take_word(value, "on", "off", &rule->addr_off))
			return 0;
		expected = "on or off";
	} else if (strcmp(key, "rate") == 0) {
		if (take_rate(value, &rule->rate))
			return 0;
		expected = "frames a second from 1 to 1000000";
	} else {
		return refuse(err, err_len,
			      "--exception '%s': unknown key '%s'; it takes "
			      "tcp=PORTS, udp=PORTS, echo=stack|kernel, "
			      "other=on|off, addr=on|off and rate=N",
			      text, key);
	}
	return refuse(err, err_len, "--exception '%s': %s is '%s'; expected %s",
		      text, key, value, expected);
}

static bool is_interface(const char *name)
{
	return *name && strlen(name) < 16 && !strpbrk(name, "/% \t\n") &&
	       strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

int net_exception_parse(const char *text, struct net_exception_rule *out,
			char *err, size_t err_len)
{
	char copy[NET_EXCEPTION_TEXT], *save = NULL, *name;

	if (strlen(text) >= sizeof(copy))
		return refuse(err, err_len,
			      "--exception: more than %u characters",
			      NET_EXCEPTION_TEXT - 1);
	strcpy(copy, text);
	memset(out, 0, sizeof(*out));
	take_ports("all", &out->tcp);
	take_ports("all", &out->udp);
	out->rate = NET_EXCEPTION_RATE;
	name = strtok_r(copy, ",", &save);
	if (!name || strncmp(name, "tap:", 4) != 0 || !is_interface(name + 4))
		return refuse(err, err_len,
			      "--exception '%s': expected tap: and the name of "
			      "an interface, at most 15 characters, as in "
			      "tap:kern0",
			      text);
	strcpy(out->name, name + 4);
	for (char *word = strtok_r(NULL, ",", &save); word;
	     word = strtok_r(NULL, ",", &save)) {
		char *value = strchr(word, '=');
		int rc;

		if (!value)
			return refuse(err, err_len,
				      "--exception '%s': '%s' has no value; "
				      "write key=value, as in tcp=22+179",
				      text, word);
		*value++ = '\0';
		rc = take_key(text, word, value, out, err, err_len);
		if (rc < 0)
			return rc;
	}
	return 0;
}
