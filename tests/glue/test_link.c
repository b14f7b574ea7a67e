/* Parsing of --link, and the errors for wrong values. */
#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue.h"

static struct glue_link link;
static char err[256];

static void assert_accepted(const char *text)
{
	err[0] = '\0';
	assert_int_equal(glue_link_parse(text, &link, err, sizeof(err)), 0);
	assert_string_equal(err, "");
}

/* Refused, with one line that names the text and has `says` in it. */
static void assert_refused(const char *text, const char *says)
{
	struct glue_link before;

	memset(&link, 0x5a, sizeof(link));
	before = link;
	err[0] = '\0';
	assert_int_equal(glue_link_parse(text, &link, err, sizeof(err)),
			 -EINVAL);
	assert_memory_equal(&link, &before, sizeof(link));
	assert_non_null(strstr(err, text));
	if (!strstr(err, says))
		fail_msg("'%s' does not say '%s'", err, says);
	assert_null(strchr(err, '\n'));
}

static void test_each_kind_is_read(void **state)
{
	assert_accepted("memif:/tmp/e.sock,role=server");
	assert_int_equal(link.kind, GLUE_LINK_MEMIF);
	assert_string_equal(link.name, "/tmp/e.sock");
	assert_true(link.server);
	assert_accepted("memif:/tmp/e.sock,role=client");
	assert_false(link.server);
	assert_accepted("tap:coro0");
	assert_int_equal(link.kind, GLUE_LINK_TAP);
	assert_accepted("vhost:/tmp/v.sock");
	assert_int_equal(link.kind, GLUE_LINK_VHOST);
	assert_false(link.server);
	assert_accepted("af_packet:eth0");
	assert_int_equal(link.kind, GLUE_LINK_AF_PACKET);
	assert_accepted("af_xdp:eth0");
	assert_int_equal(link.kind, GLUE_LINK_AF_XDP);
	assert_accepted("ring:r0");
	assert_int_equal(link.kind, GLUE_LINK_RING);
	assert_accepted("memif:/e,role=server,mode=660");
	assert_int_equal(link.mode, 0660);
	assert_accepted("memif:/e,role=server");
	assert_int_equal(link.mode, 0);
	assert_accepted("port:net_bonding0");
	assert_int_equal(link.kind, GLUE_LINK_PORT);
	assert_string_equal(link.name, "net_bonding0");
	assert_accepted("af_xdp:veth0,csum=trust");
	assert_int_equal(link.csum, GLUE_CSUM_TRUST);
	assert_accepted("af_packet:veth0,csum=trust");
	assert_accepted("pcap:in.pcap,out.pcap,csum=sw");
	assert_int_equal(link.kind, GLUE_LINK_PCAP);
	assert_string_equal(link.name, "in.pcap");
	assert_string_equal(link.name2, "out.pcap");
}

static void test_bonds_are_read(void **state)
{
	assert_accepted("bond:b0,members=tap:a+af_packet:eth0");
	assert_int_equal(link.kind, GLUE_LINK_BOND);
	assert_string_equal(link.name, "b0");
	assert_string_equal(link.name2, "tap:a+af_packet:eth0");
	assert_false(link.lacp);
	assert_false(link.on_ports);
	assert_accepted(
		"bond:b0,members=pci:03:00.0+pci:0000:04:00.1,mode=802.3ad,"
		"queues=4,vlan=7");
	assert_true(link.lacp);
	assert_true(link.on_ports);
	assert_int_equal(link.queues, 4);
	assert_accepted(
		"bond:b0,mode=active-backup,members=port:net_x0+tap:a+tap:b"
		",csum=trust");
	assert_false(link.lacp);
	assert_false(link.on_ports);
	assert_refused("bond:b0", "0 members; expected two or more");
	assert_refused("bond:b0,members=tap:a",
		       "1 member; expected two or more");
	assert_refused("bond:b0,members=tap:a+tap:a",
		       "'tap:a' is a member already");
	assert_refused("bond:b0,members=tap:a+pci:xyz",
		       "link 'pci:xyz': expected");
	assert_refused("bond:b0,members=tap:a+memif:/e", "takes no other MAC");
	assert_refused("bond:b0,members=tap:a+bond:c", "0 members");
	assert_refused("bond:b0,members=tap:a+tap:b+tap:c+tap:d+tap:e",
		       "more than 4 members");
	assert_refused("bond:b0,members=tap:a+tap:b,mode=balance",
		       "active-backup or 802.3ad");
	assert_refused("tap:b0,members=tap:a+tap:b", "unknown key 'members'");
}

static void test_pci_address_keeps_its_colons(void **state)
{
	assert_accepted("pci:0000:03:00.1,csum=hw");
	assert_int_equal(link.kind, GLUE_LINK_PCI);
	assert_string_equal(link.name, "0000:03:00.1");
	assert_int_equal(link.csum, GLUE_CSUM_HW);
	assert_accepted("pci:0000:0A:1F.7");
	assert_string_equal(link.name, "0000:0a:1f.7");
	assert_accepted("pci:03:00.0");
	assert_string_equal(link.name, "0000:03:00.0");
}

/* Reads the next "KEY=" of a list into `key`. */
static bool next_key(const char **at, char *key)
{
	size_t len;

	while (**at && !islower((unsigned char)**at))
		++*at;
	len = strspn(*at, "abcdefghijklmnopqrstuvwxyz");
	if (len == 0)
		return false;
	snprintf(key, 16, "%.*s=", (int)len, *at);
	*at += len;
	*at += **at == '=' ? strcspn(*at, ", ") : 0;
	return true;
}

static void test_help_has_exactly_the_keys_of_all_kinds(void **state)
{
	static const char *const links[] = {"memif:/e,x=1", "vhost:/e,x=1",
					    "bond:b0,x=1", "tap:a,x=1"};
	char all[sizeof(err) * 4] = "", key[16];
	const char *at;

	for (unsigned i = 0; i < 4; i++) {
		assert_refused(links[i], "unknown key 'x'");
		at = strstr(err, " takes ") + 7;
		strcat(all, at);
		strcat(all, ", ");
		while (next_key(&at, key))
			if (strcmp(key, "and=") != 0)
				assert_non_null(strstr(GLUE_LINK_KEYS, key));
	}
	for (at = GLUE_LINK_KEYS; next_key(&at, key);)
		assert_non_null(strstr(all, key));
}

static void test_keys_are_read(void **state)
{
	static const uint8_t mac[6] = {2, 0, 0, 0, 0, 0xfe};

	assert_accepted("memif:/e,queue=2048,csum=sw,mac=02:00:00:00:00:fe");
	assert_int_equal(link.queue_size, 2048);
	assert_int_equal(link.csum, GLUE_CSUM_SW);
	assert_memory_equal(link.mac, mac, 6);
	assert_int_equal(link.tso, GLUE_TSO_AUTO);
	assert_accepted("tap:t0,tso=on,csum=hw");
	assert_int_equal(link.tso, GLUE_TSO_ON);
	assert_int_equal(link.queues, 0);
	assert_accepted("tap:t0,queues=16");
	assert_int_equal(link.queues, 16);
	assert_accepted("memif:/e,queues=64,queue=128");
	assert_int_equal(link.queues, 64);
	assert_int_equal(link.queue_size, 128);
	assert_accepted("tap:t0,tso=off");
	assert_int_equal(link.tso, GLUE_TSO_OFF);
}

/* For every kind of link; a link without the key has none. */
static void test_vlan_is_read(void **state)
{
	assert_accepted("memif:/e,vlan=1");
	assert_int_equal(link.vlan, 1);
	assert_accepted("tap:t0,vlan=4094,queues=2");
	assert_int_equal(link.vlan, 4094);
	assert_accepted("vhost:/v,vlan=7");
	assert_int_equal(link.vlan, 7);
	assert_accepted("af_packet:eth0,vlan=100");
	assert_int_equal(link.vlan, 100);
	assert_accepted("af_xdp:eth0,vlan=7");
	assert_int_equal(link.vlan, 7);
	assert_accepted("pci:0000:03:00.0,vlan=7");
	assert_int_equal(link.vlan, 7);
	assert_accepted("ring:r0,vlan=7");
	assert_int_equal(link.vlan, 7);
	assert_accepted("pcap:in.pcap,out.pcap,vlan=7");
	assert_int_equal(link.vlan, 7);
	assert_accepted("tap:t0");
	assert_int_equal(link.vlan, 0);
}

static void test_wrong_vlans_are_named_with_their_range(void **state)
{
	static const char *const values[] = {"0",
					     "4095",
					     "4096",
					     "-1",
					     "",
					     "7x",
					     "0x7",
					     " 7",
					     "+7",
					     "65543",
					     "18446744073709551623"};

	for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		char text[64], says[96];

		snprintf(text, sizeof(text), "tap:t0,vlan=%s", values[i]);
		snprintf(says, sizeof(says),
			 "vlan is '%s'; expected a VLAN ID from 1 to 4094",
			 values[i]);
		assert_refused(text, says);
	}
}

static void test_wrong_links_are_refused_with_a_reason(void **state)
{
	assert_refused("", "unknown kind");
	assert_refused("eth0", "memif:/tmp/e.sock");
	assert_refused("mem:/tmp/e.sock", "unknown kind 'mem'");
	assert_refused("memif", "name after 'memif:' is missing");
	assert_refused("memif:", "is missing");
	assert_refused("memif:,role=server", "is missing");
	assert_refused("memif:/e,role=boss", "expected server or client");
	assert_refused("memif:/e,role", "has no value");
	assert_refused("memif:/e,color=red", "unknown key 'color'");
	assert_refused("tap:t0,role=server", "unknown key 'role'");
	assert_refused("tap:a-name-of-16-chr", "at most 15");
	assert_refused("memif:/e,queue=1000", "power of two");
	assert_refused("memif:/e,queue=32", "power of two");
	assert_refused("memif:/e,queue=-64", "power of two");
	assert_refused("memif:/e,queue=64x", "power of two");
	assert_refused("memif:/e,queues=0", "a number from 1 to 64");
	assert_refused("memif:/e,queues=65", "a number from 1 to 64");
	assert_refused("memif:/e,queues=2x", "a number from 1 to 64");
	assert_refused("memif:/e,queues=-1", "a number from 1 to 64");
	assert_refused("tap:t0,queues=17", "queues=17: tap has at most 16");
	assert_refused("pcap:in.pcap,out.pcap,queues=2", "pcap has at most 1");
	assert_refused("memif:/e,mac=01:00:00:00:00:00", "unicast");
	assert_refused("memif:/e,mac=02:00:00:00:00", "unicast");
	assert_refused("memif:/e,csum=maybe", "auto, hw, sw or trust");
	assert_refused("memif:/e,csum=trust",
		       "only for af_packet, af_xdp and bond");
	assert_refused("tap:t0,csum=trust",
		       "only for af_packet, af_xdp and bond");
	assert_refused("memif:/e,tso=hw", "auto, on or off");
	assert_refused("pcap:in.pcap", "is missing");
	assert_refused("memif:/e,mode=060", "mode of the server's socket");
	assert_refused("memif:/e,mode=1777", "mode of the server's socket");
	assert_refused("memif:/e,mode=rw", "mode of the server's socket");
	assert_refused("vhost:/e,mode=660", "unknown key 'mode'");
	assert_refused("pci:nonsense", "PCI address");
	assert_refused("pci:0000:03:00", "PCI address");
	assert_refused("pci:0000:03:00.1x", "PCI address");
	assert_refused("pci:0000:03:40.0", "PCI address");
}

static void test_socket_path_over_107_bytes_is_refused(void **state)
{
	char text[256] = "memif:/";

	memset(text + 7, 'x', GLUE_PATH_MAX - 2);
	text[7 + GLUE_PATH_MAX - 2] = '\0';
	assert_accepted(text);
	strcat(text, "x");
	assert_refused(text, "at most 107");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_kind_is_read),
		cmocka_unit_test(test_bonds_are_read),
		cmocka_unit_test(test_pci_address_keeps_its_colons),
		cmocka_unit_test(test_help_has_exactly_the_keys_of_all_kinds),
		cmocka_unit_test(test_keys_are_read),
		cmocka_unit_test(test_vlan_is_read),
		cmocka_unit_test(test_wrong_vlans_are_named_with_their_range),
		cmocka_unit_test(test_wrong_links_are_refused_with_a_reason),
		cmocka_unit_test(test_socket_path_over_107_bytes_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
