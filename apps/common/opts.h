/*
 * Shared by the options of all programs: strict numbers, addresses, and
 * refusals.
 *
 * A wrong value ends the program with exit status 2 and exactly one line on
 * stderr, which names the value, says what was expected and gives an example.
 * Everything here is called from argp parsers, before any other thread runs.
 */
#pragma once

#include <argp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define OPTS_EXIT_USAGE 2

#define OPTS_NS_PER_S INT64_C(1000000000)

/* An address and a port, as text and in the form of the socket calls. */
struct opts_endpoint {
	char host[INET6_ADDRSTRLEN]; /* without brackets */
	uint16_t port;
	struct sockaddr_storage addr;
	socklen_t addr_len;
};

/* The project's version, "0.1.0". */
const char *opts_version(void);

/* What --version prints: "coronet-load (coronet) 0.1.0". Before argp_parse().
 */
void opts_set_version(const char *program);

/*
 * Sets the function that returns where an option comes from, such as
 * net_config_place(), for opts_refuse(). Without it, all come from the command
 * line.
 */
typedef const char *opts_place_fn(const struct argp_state *state,
				  const char *name);
void opts_set_place(opts_place_fn *place);

/*
 * To be called on ARGP_KEY_INIT: makes a wrong option end with exit status 2,
 * without argp's second line. The program exits with OPTS_EXIT_USAGE when
 * argp_parse() then returns an error.
 */
void opts_begin(struct argp_state *state);

/*
 * Prints the one line and exits with OPTS_EXIT_USAGE. `value` is NULL when the
 * option is missing altogether; `example` is a whole "--option value".
 */
__attribute__((noreturn)) void
opts_refuse(const struct argp_state *state, const char *option,
	    const char *value, const char *expected, const char *example);

/*
 * Like opts_refuse(), for an argument that is no option: call on ARGP_KEY_ARG.
 */
__attribute__((noreturn)) void
opts_refuse_argument(const struct argp_state *state, const char *argument);

/*
 * Passes one option to one parser, by its name without dashes; name NULL: the
 * end (ARGP_KEY_END). A refusal does not end the program: the call returns
 * -EINVAL with the line in error, which begins with `place` ("" or "--config
 * ...: "). -ENOENT: the parser has no such option. For a file that is read
 * again while the program runs, on any thread; value must stay valid, like a
 * string of argv.
 */
int opts_try(const struct argp *argp, const char *name, char *value,
	     const char *place, void *input, char *error, size_t len);

/*
 * A whole decimal number from min to max and nothing else: no sign, space, unit
 * or leading "0x". Returns 0, -EINVAL (no such number) or -ERANGE.
 */
int opts_parse_number(const char *text, uint64_t min, uint64_t max,
		      uint64_t *out);

/*
 * Seconds with up to nine decimals ("2", "0.25") from min_ns to max_ns, as
 * nanoseconds. Returns 0, -EINVAL or -ERANGE.
 */
int opts_parse_seconds(const char *text, int64_t min_ns, int64_t max_ns,
		       int64_t *out_ns);

/* An IPv4 or IPv6 address ("10.9.0.1", "::1") and a port: 0 or -EINVAL. */
int opts_parse_address(const char *text, uint16_t port,
		       struct opts_endpoint *out);

/*
 * "10.9.0.1:7777" or "[fd00::1]:7777", port 1 to 65535: 0 or -EINVAL. Names are
 * not resolved.
 */
int opts_parse_endpoint(const char *text, struct opts_endpoint *out);

/*
 * Whether an address is that of one host, to which a peer can connect: not in
 * 0.0.0.0/8, not a multicast group, not a broadcast address.
 */
bool opts_is_host(const struct opts_endpoint *end);

/*
 * The default limit of clients per source: half of max_clients, so that one
 * source cannot keep the others out, but at least 1,024.
 */
unsigned opts_source_limit(unsigned max_clients);

/* The parsers above, or opts_refuse(); `option` is "--conns". */
uint64_t opts_number(const struct argp_state *state, const char *option,
		     const char *text, uint64_t min, uint64_t max,
		     const char *example);
int64_t opts_seconds(const struct argp_state *state, const char *option,
		     const char *text, int64_t min_ns, int64_t max_ns,
		     const char *example);
