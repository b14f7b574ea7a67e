/* Reads the TTL of a host name's DNS records. */
#include "apps/proxy/name_ttl.h"

#include <arpa/nameser.h>
#include <errno.h>
#include <netinet/in.h>
#include <resolv.h>
#include <string.h>

#define ANSWER_MAX 4096 /* bytes; what is longer is cut */

/* The smallest TTL of the answer's records: aliases and addresses. */
static int64_t smallest_ttl(const unsigned char *answer, int len)
{
	int64_t ttl = -ENOENT;
	ns_msg message;

	if (ns_initparse(answer, len, &message) < 0)
		return -ENOENT;
	for (int i = 0; i < ns_msg_count(message, ns_s_an); i++) {
		ns_rr record;

		if (ns_parserr(&message, ns_s_an, i, &record) < 0)
			break;
		if (ttl < 0 || ns_rr_ttl(record) < ttl)
			ttl = ns_rr_ttl(record);
	}
	return ttl;
}

int64_t name_ttl(const char *host, uint8_t family)
{
	unsigned char answer[ANSWER_MAX];
	struct __res_state state;
	int len;

	memset(&state, 0, sizeof(state));
	if (res_ninit(&state) < 0)
		return -ENOENT;
	len = res_nsearch(&state, host, ns_c_in,
			  family == 4 ? ns_t_a : ns_t_aaaa, answer,
			  sizeof(answer));
	res_nclose(&state);
	if (len > (int)sizeof(answer))
		len = sizeof(answer);
	return len < 0 ? -ENOENT : smallest_ttl(answer, len);
}
