/*
 * Names of hosts in a capture filter. libpcap would query a name server for
 * each while it compiles, and block its thread meanwhile.
 */
#include <ctype.h>
#include <string.h>

#include "dpdk_glue/pcap_priv.h"

/* libpcap's words (pcap-filter(7)); unsorted, since there are few. */
static const char *const known[] = {
	"src",		"dst",	     "host",
	"net",		"mask",	     "port",
	"portrange",	"less",	     "greater",
	"len",		"length",    "proto",
	"protochain",	"gateway",   "broadcast",
	"multicast",	"inbound",   "outbound",
	"ifindex",	"ether",     "link",
	"ip",		"ip6",	     "arp",
	"rarp",		"tcp",	     "udp",
	"sctp",		"icmp",	     "icmp6",
	"igmp",		"igrp",	     "pim",
	"vrrp",		"carp",	     "ah",
	"esp",		"and",	     "or",
	"not",		"vlan",	     "mpls",
	"pppoed",	"pppoes",    "geneve",
	"vxlan",	"gre",	     "stp",
	"iso",		"clnp",	     "esis",
	"isis",		"ipx",	     "netbeui",
	"aarp",		"atalk",     "decnet",
	"lat",		"mopdl",     "moprc",
	"icmptype",	"icmpcode",  "icmp6type",
	"icmp6code",	"tcpflags",  "tcp-fin",
	"tcp-syn",	"tcp-rst",   "tcp-push",
	"tcp-ack",	"tcp-urg",   "tcp-ece",
	"tcp-cwr",	"icmp-echo", "icmp-echoreply",
	"icmp-unreach",
};

static bool is_part(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("._:-", c));
}

static bool is_known(const char *at, size_t len)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i]) == len &&
		    strncasecmp(known[i], at, len) == 0)
			return true;
	/* other types of ICMP; libpcap knows which of them exist */
	return len > 5 && strncmp(at, "icmp", 4) == 0 &&
	       (at[4] == '-' || at[4] == '6');
}

/* An address or a number: it begins with a digit, or has a colon. */
static bool is_number(const char *at, size_t len)
{
	if (memchr(at, ':', len))
		return true;
	return isdigit((unsigned char)*at) &&
	       strspn(at, "0123456789abcdefABCDEFxX.-") >= len;
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
