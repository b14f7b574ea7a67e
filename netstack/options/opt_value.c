/*
 * Reads numbers, sizes, words, addresses and ranges.
 */
#include "netstack/options/opt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The digits up to end, of which there is at least one. */
static int parse_digits(const char *text, const char *end, uint64_t *out)
{
	uint64_t value = 0;

	if (text == end)
		return -EINVAL;
	for (const char *c = text; c < end; c++)
		if (*c < '0' || *c > '9')
			return -EINVAL;
	for (; text < end; text++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'),
					   &value))
			return -ERANGE;
	*out = value;
	return 0;
}

static int check_bounds(uint64_t value, uint64_t min, uint64_t max,
			uint64_t *out)
{
	if (value < min || value > max)
		return -ERANGE;
	*out = value;
	return 0;
}

int opt_parse_number(const char *text, uint64_t min, uint64_t max,
		     uint64_t *out)
{
	uint64_t value;
	int err = parse_digits(text, text + strlen(text), &value);

	return err ? err : check_bounds(value, min, max, out);
}

int opt_parse_decimal(const char *text, uint64_t min, uint64_t max,
		      uint64_t *out)
{
	const char *end = text + strlen(text), *point = strchr(text, '.');
	uint64_t value = 0, fraction = 0;
	int err = parse_digits(text, point ? point : end, &value);

	if (point && end - point > 10)
		return -EINVAL;
	if (point && parse_digits(point + 1, end, &fraction) < 0)
		return -EINVAL;
	for (long digits = point ? end - point - 1 : 9; digits < 9; digits++)
		fraction *= 10;
	if (err)
		return err;
	if (__builtin_mul_overflow(value, (uint64_t)OPT_NS_PER_S, &value) ||
	    __builtin_add_overflow(value, fraction, &value))
		return -ERANGE;
	return check_bounds(value, min, max, out);
}

int opt_parse_size(const char *text, bool bare, uint64_t min, uint64_t max,
		   uint64_t *out)
{
	static const char units[] = "KMG";
	size_t digits = strspn(text, "0123456789");
	const char *unit = text[digits] ? strchr(units, text[digits]) : NULL;
	unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	uint64_t value;
	int err = parse_digits(text, text + digits, &value);

	if ((!unit && (!bare || text[digits])) || (unit && text[digits + 1]))
		return -EINVAL;
	if (err)
		return err;
	if (value > UINT64_MAX >> shift)
		return -ERANGE;
	return check_bounds(value << shift, min, max, out);
}

int opt_find_word(const char *words, const char *text)
{
	size_t len = strlen(text);

	if (len == 0)
		return -EINVAL;
	for (int i = 0; words; i++) {
		const char *end = strchr(words, '|');
		size_t n = end ? (size_t)(end - words) : strlen(words);

		if (n == len && strncmp(words, text, len) == 0)
			return i;
		words = end ? end + 1 : NULL;
	}
	return -EINVAL;
}

int opt_parse_address(const char *text, uint16_t port, struct opt_endpoint *out)
{
	struct opt_endpoint end = {.port = port};
	struct sockaddr_in *in = (struct sockaddr_in *)&end.addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&end.addr;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		end.addr_len = sizeof(*in);
	} else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		end.addr_len = sizeof(*in6);
	} else {
		return -EINVAL;
	}
	snprintf(end.host, sizeof(end.host), "%s", text);
	*out = end;
	return 0;
}

int opt_parse_endpoint(const char *text, struct opt_endpoint *out)
{
	const char *colon = strrchr(text, ':');
	bool brackets = text[0] == '[';
	char host[INET6_ADDRSTRLEN + 2];
	uint64_t port;
	size_t len;

	if (!colon || opt_parse_number(colon + 1, 1, UINT16_MAX, &port))
		return -EINVAL;
	len = (size_t)(colon - text);
	if (len == 0 || len >= sizeof(host))
		return -EINVAL;
	if (brackets && text[len - 1] != ']')
		return -EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)len - 2 * brackets,
		 text + brackets);
	/* Without brackets, the end of an IPv6 address is not known. */
	if (brackets == !strchr(host, ':'))
		return -EINVAL;
	return opt_parse_address(host, (uint16_t)port, out);
}

static bool is_host4(uint32_t ip)
{
	return ip >> 24 != 0 && ip >> 24 < 224;
}

bool opt_is_host(const struct opt_endpoint *end)
{
	const struct sockaddr_in *in = (const void *)&end->addr;
	const struct sockaddr_in6 *in6 = (const void *)&end->addr;
	const uint8_t *ip = in6->sin6_addr.s6_addr;

	if (end->addr.ss_family == AF_INET)
		return is_host4(ntohl(in->sin_addr.s_addr));
	if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		return is_host4((uint32_t)ip[12] << 24 | ip[13]);
	return ip[0] != 0xff && !IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

/* Reads the number at *at, which moves behind it. */
static int parse_part(const char **at, uint64_t min, uint64_t max,
		      uint64_t *out)
{
	const char *end = *at + strspn(*at, "0123456789");
	int err = parse_digits(*at, end, out);

	*at = end;
	return err ? err : check_bounds(*out, min, max, out);
}

int opt_parse_ranges(const char *text, char separator, uint64_t min,
		     uint64_t max, opt_range_fn *fn, void *arg,
		     struct opt_error *error)
{
	for (const char *at = text;; at++) {
		uint64_t first, last;
		int err = parse_part(&at, min, max, &first);

		last = first;
		if (err == 0 && *at == '-') {
			at++;
			err = parse_part(&at, min, max, &last);
		}
		if (err == -EINVAL || (*at && *at != separator))
			return opt_expect(error,
					  "numbers and ranges of them, as in "
					  "2-5%c8",
					  separator);
		if (err < 0)
			return opt_expect(error,
					  "numbers from %ju to %ju and ranges "
					  "of them",
					  (uintmax_t)min, (uintmax_t)max);
		if (last < first)
			return opt_expect(error, "ranges that begin with the "
						 "smaller number");
		err = fn(arg, first, last, error);
		if (err || !*at)
			return err;
	}
}

/* Checks the folder of a file that does not exist yet. */
static int check_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder =
		slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	int err = !folder ? -ENOMEM : access(folder, W_OK | X_OK) ? -errno : 0;

	free(folder);
	return err;
}

int opt_check_writable(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return errno == ENOENT ? check_folder(path) : -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	return access(path, W_OK) < 0 ? -errno : 0;
}
