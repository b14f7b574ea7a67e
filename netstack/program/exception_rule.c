/*
 * Parses the option --exception.
 */
#include "netstack/program/exception_rule.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "netstack/options/opt.h"

static int add_ports(void *arg, uint64_t first, uint64_t last,
		     struct opt_error *error)
{
	struct net_ports *ports = arg;

	for (; first <= last; first++)
		ports->bits[first / 8] |= (uint8_t)(1u << first % 8);
	return 0;
}

/* "22+179+33434-33534" */
static int read_ports(const struct opt *opt, const char *text, void *base,
		      struct opt_error *error)
{
	void *member = (char *)base + opt->at.offset;
	bool others = *text == '!';
	struct net_ports ports = {0};

	if (strcmp(text, "all") == 0)
		others = true;
	else if (strcmp(text, "none") != 0 &&
		 opt_parse_ranges(text + others, '+', 1, 65535, add_ports,
				  &ports, error) < 0)
		return opt_expect(error, "%s", opt->expected);
	for (size_t i = 0; others && i < sizeof(ports.bits); i++)
		ports.bits[i] = (uint8_t)~ports.bits[i];
	memcpy(member, &ports, sizeof(ports));
	return 0;
}

#define PORTS                                                                  \
	"all, none, or ports from 1 to 65535 as in 22+179+33434-33534, with "  \
	"a ! before them for all others"

#define AT(member) OPT_AT(struct net_exception_rule, member)

static const struct opt keys[] = {
	{"tcp", OPT_CUSTOM, AT(tcp), .initial = "all", .read = read_ports,
	 .expected = PORTS},
	{"udp", OPT_CUSTOM, AT(udp), .initial = "all", .read = read_ports,
	 .expected = PORTS},
	{"echo", OPT_CHOICE, AT(echo), .arg = "stack|kernel"},
	{"other", OPT_CHOICE, AT(other_off), .arg = "on|off"},
	{"addr", OPT_CHOICE, AT(addr_off), .arg = "on|off"},
	{"rate", OPT_NUMBER, AT(rate), .min = 1, .max = NET_EXCEPTION_RATE_MAX},
};

static bool is_interface(const char *name)
{
	return *name && strlen(name) < 16 && !strpbrk(name, "/% \t\n") &&
	       strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int parse_words(char *words, struct net_exception_rule *out,
		       struct opt_error *error)
{
	char *save = NULL, *name = strtok_r(words, ",", &save);

	if (!name || strncmp(name, "tap:", 4) != 0 || !is_interface(name + 4))
		return opt_expect(error, "tap: and the name of an interface, "
					 "at most 15 characters");
	strcpy(out->name, name + 4);
	for (char *word = strtok_r(NULL, ",", &save); word;
	     word = strtok_r(NULL, ",", &save))
		if (opt_set_key(keys, OPT_COUNT(keys), word, out, error) < 0)
			return -EINVAL;
	return 0;
}

int net_exception_parse(const char *text, struct net_exception_rule *out,
			char *err, size_t err_len)
{
	char copy[NET_EXCEPTION_TEXT];
	struct opt_error error;
	int rc;

	memset(out, 0, sizeof(*out));
	opt_set_defaults(keys, OPT_COUNT(keys), out);
	out->rate = NET_EXCEPTION_RATE;
	if (strlen(text) >= sizeof(copy)) {
		rc = opt_expect(&error, "at most %u characters",
				NET_EXCEPTION_TEXT - 1);
	} else {
		strcpy(copy, text);
		rc = parse_words(copy, out, &error);
	}
	if (rc < 0) {
		opt_refuse(&error, "--exception", text, error.expected,
			   "--exception tap:kern0,tcp=22+179");
		snprintf(err, err_len, "%s", error.text);
	}
	return rc;
}
