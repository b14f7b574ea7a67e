/*
 * Names of hosts in a capture filter. libpcap would query a name server for
 * each while it compiles, and block its thread meanwhile.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include "dpdk_glue/pcap_priv.h"

#define HEX "0123456789abcdefABCDEF"

/*
 * Words of pcap-filter(7) that libpcap 1.10 has; newer ones are left out, since
 * a libpcap without them would query them.
 */
const char glue_filter_words[] =
	"src dst host net mask port portrange less greater len length proto "
	"protochain gateway broadcast multicast inbound outbound ifindex "
	"ether link ip ip6 arp rarp tcp udp sctp icmp icmp6 igmp igrp pim "
	"vrrp carp ah esp and or not vlan mpls pppoed pppoes geneve stp iso "
	"clnp esis isis ipx netbeui aarp atalk decnet lat mopdl moprc "
	"icmptype icmpcode icmp6type icmp6code tcpflags tcp-fin tcp-syn "
	"tcp-rst tcp-push tcp-ack tcp-urg tcp-ece tcp-cwr icmp-echo "
	"icmp-echoreply icmp-ireq icmp-ireqreply icmp-maskreply icmp-maskreq "
	"icmp-paramprob icmp-redirect icmp-routeradvert icmp-routersolicit "
	"icmp-sourcequench icmp-timxceed icmp-tstamp icmp-tstampreply "
	"icmp-unreach icmp6-certpathadvert icmp6-certpathsolicit "
	"icmp6-destinationunreach icmp6-echo icmp6-echoreply "
	"icmp6-homeagentdiscoveryreply icmp6-homeagentdiscoveryrequest "
	"icmp6-ineighbordiscoveryadvert icmp6-ineighbordiscoverysolicit "
	"icmp6-mobileprefixadvert icmp6-mobileprefixsolicit "
	"icmp6-multicastlistenerdone icmp6-multicastlistenerquery "
	"icmp6-multicastlistenerreportv1 icmp6-multicastlistenerreportv2 "
	"icmp6-multicastrouteradvert icmp6-multicastroutersolicit "
	"icmp6-multicastrouterterm icmp6-neighboradvert "
	"icmp6-neighborsolicit icmp6-nodeinformationquery "
	"icmp6-nodeinformationresponse icmp6-packettoobig "
	"icmp6-parameterproblem icmp6-redirect icmp6-routeradvert "
	"icmp6-routerrenum icmp6-routersolicit icmp6-timeexceeded";

static bool is_part(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("._:-", c));
}

static bool is_known(const char *at, size_t len)
{
	for (const char *word = glue_filter_words; *word;) {
		size_t word_len = strcspn(word, " ");

		if (word_len == len && strncasecmp(word, at, len) == 0)
			return true;
		word += word_len + (word[word_len] == ' ');
	}
	return false;
}

/* The groups of at most max_digits of these digits; 0 if there is more. */
static unsigned count_groups(const char *at, size_t len, const char *digits,
			     size_t max_digits, char separator)
{
	unsigned n = 0;

	for (size_t end = 0; end <= len; end++) {
		size_t group = strspn(at + end, digits);

		if (group == 0 || group > max_digits || end + group > len)
			return 0;
		n++;
		end += group;
		if (end < len && at[end] != separator)
			return 0;
	}
	return n;
}

static bool is_ip6(const char *at, size_t len)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr ip;

	if (len >= sizeof(text))
		return false;
	memcpy(text, at, len);
	text[len] = '\0';
	return inet_pton(AF_INET6, text, &ip) == 1;
}

static bool is_mac(const char *at, size_t len)
{
	for (const char *separator = ".:-"; *separator; separator++)
		if (count_groups(at, len, HEX, 2, *separator) == 6)
			return true;
	return false;
}

/*
 * Numbers, addresses and MAC addresses as libpcap reads them. Of all else that
 * begins with a digit or has a colon, it takes at least a part for a name.
 */
static bool is_number(const char *at, size_t len)
{
	unsigned parts = count_groups(at, len, "0123456789", 10, '.');

	if (len > 2 && at[0] == '0' && (at[1] | 0x20) == 'x')
		return strspn(at + 2, HEX) >= len - 2;
	return (parts > 0 && parts <= 4) ||
	       strspn(at, "0123456789:") >= len || /* ip[offset:size] */
	       is_ip6(at, len) || is_mac(at, len);
}

/* Words that the name of a service or a protocol may follow. */
static bool takes_service(const char *at, size_t len)
{
	return (len == 4 && strncmp(at, "port", 4) == 0) ||
	       (len == 9 && strncmp(at, "portrange", 9) == 0) ||
	       (len == 5 && strncmp(at, "proto", 5) == 0) ||
	       (len == 10 && strncmp(at, "protochain", 10) == 0);
}

size_t glue_filter_find_name(const char *text, const char **name)
{
	bool service = false;

	while (*text) {
		size_t len = 0;

		/* A backslash makes a name of what follows, even of a word. */
		if (*text == '\\' && !service) {
			*name = text;
			return 1 + strcspn(text + 1, " !()\t\n");
		}
		while (*text != '-' && is_part(text[len]))
			len++;
		if (len && !service && !is_known(text, len) &&
		    !is_number(text, len)) {
			*name = text;
			return len;
		}
		if (len)
			service = takes_service(text, len);
		text += len ? len : 1;
	}
	return 0;
}
