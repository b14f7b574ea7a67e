#include "tests/wire/settings.h"

#include <errno.h>
#include <string.h>

#include "apps/common/opts.h"

/* Decimal numbers are read with nine decimals, as 1e-9 units. */
#define UNIT	  OPT_NS_PER_S
#define DAY_NS	  (86400 * OPT_NS_PER_S)
#define MAX_MS	  60000
#define MAX_MBIT  400000
#define MAX_BYTES (UINT64_C(1) << 40)
#define MIN_MTU	  68 /* RFC 791: what every link carries */
#define MAX_MTU	  9000

enum kind { PERCENT, MS, SECONDS, MBIT, QUEUE, MARK, MTU, TOO_BIG };

/* QUEUE and MARK set two members each. */
const struct wire_setting wire_settings[WIRE_SETTINGS] = {
	{"loss", PERCENT, offsetof(struct wire_conf, loss), "PERCENT", "1",
	 "Frames that are lost"},
	{"delay", MS, offsetof(struct wire_conf, delay_ns), "MS", "10",
	 "In each direction: a round trip takes twice as long"},
	{"jitter", MS, offsetof(struct wire_conf, jitter_ns), "MS", "2",
	 "Added to the delay, evenly from 0 to MS; never reorders"},
	{"reorder", PERCENT, offsetof(struct wire_conf, reorder), "PERCENT",
	 "0.5", "Frames held back so that later ones overtake them"},
	{"reorder-by", MS, offsetof(struct wire_conf, reorder_by_ns), "MS", "1",
	 "Delay of a reordered frame (default 1)"},
	{"duplicate", PERCENT, offsetof(struct wire_conf, duplicate), "PERCENT",
	 "0.1", "Frames that arrive twice"},
	{"corrupt", PERCENT, offsetof(struct wire_conf, corrupt), "PERCENT",
	 "0.1", "Frames with one bit flipped behind the Ethernet header"},
	{"rate", MBIT, offsetof(struct wire_conf, rate_bps), "MBIT", "100",
	 "Bits a second, counted from the Ethernet header on; 0: no limit"},
	{"queue", QUEUE, 0, "FRAMES|BYTES", "100 or 64000B",
	 "Length of the queue at the rate, the frame being sent included; "
	 "when it is full, frames are dropped (default 1000)"},
	{"mark", MARK, 0, "FRAMES|BYTES", "20 or 30000B",
	 "Queue length from which ECN-capable packets are marked (RFC 3168; "
	 "default: none are)"},
	{"path-mtu", MTU, offsetof(struct wire_conf, mtu), "BYTES", "1000",
	 "Longer IP packets do not pass; 0: no limit"},
	{"too-big", TOO_BIG, offsetof(struct wire_conf, send_too_big),
	 "drop|report", "report",
	 "Whether their senders get an ICMP or ICMPv6 error "
	 "(default: drop)"},
	{"down-at", SECONDS, offsetof(struct wire_conf, down_ns), "SECONDS",
	 "2", "The link goes down: nothing arrives and nothing leaves"},
	{"up-at", SECONDS, offsetof(struct wire_conf, up_ns), "SECONDS", "3",
	 "The link comes back"},
};

static const char *const expected_of[] = {
	[PERCENT] = "percent from 0 to 100",
	[MS] = "milliseconds from 0 to 60000",
	[SECONDS] = "seconds from 0 to 86400 after the start",
	[MBIT] = "Mbit/s from 0.001 to 400000, or 0",
	[QUEUE] = "frames from 1 to 1000000, or bytes with a B behind them",
	[MARK] = "frames from 1 to 1000000, or bytes with a B behind them",
	[MTU] = "bytes from 68 to 9000, or 0",
	[TOO_BIG] = "drop or report",
};

/* Frames or bytes; the other is 0. */
static int parse_queue(const char *text, uint64_t *pkts, uint64_t *bytes)
{
	size_t len = strlen(text);
	char digits[24];
	uint64_t n;
	int err;

	if (len == 0 || text[len - 1] != 'B') {
		err = opt_parse_number(text, 1, 1000000, &n);
		if (err == 0) {
			*pkts = n;
			*bytes = 0;
		}
		return err;
	}
	if (len > sizeof(digits))
		return -EINVAL;
	memcpy(digits, text, len - 1);
	digits[len - 1] = '\0';
	err = opt_parse_number(digits, 1, MAX_BYTES, &n);
	if (err == 0) {
		*pkts = 0;
		*bytes = n;
	}
	return err;
}

static int parse_mtu(const char *text, unsigned *mtu)
{
	uint64_t value;
	int err = opt_parse_number(text, 0, MAX_MTU, &value);

	if (err == 0 && value != 0 && value < MIN_MTU)
		err = -ERANGE;
	if (err == 0)
		*mtu = (unsigned)value;
	return err;
}

static int parse_too_big(const char *text, bool *send_too_big)
{
	if (strcmp(text, "drop") != 0 && strcmp(text, "report") != 0)
		return -EINVAL;
	*send_too_big = strcmp(text, "report") == 0;
	return 0;
}

int wire_setting_parse(const struct wire_setting *setting, const char *text,
		       struct wire_conf *conf)
{
	void *member = (char *)conf + setting->offset;
	uint64_t value = 0;
	int err = 0;

	switch ((enum kind)setting->kind) {
	case PERCENT:
		err = opt_parse_decimal(text, 0, 100 * UNIT, &value);
		if (err == 0)
			*(uint64_t *)member =
				(uint64_t)((unsigned __int128)value *
					   WIRE_SURE / (100 * UNIT));
		return err;
	case MS:
		err = opt_parse_decimal(text, 0, MAX_MS * UNIT, &value);
		if (err == 0)
			*(int64_t *)member = (int64_t)value / 1000;
		return err;
	case SECONDS:
		err = opt_parse_decimal(text, 0, DAY_NS, &value);
		if (err == 0)
			*(int64_t *)member = (int64_t)value;
		return err;
	case MBIT:
		err = opt_parse_decimal(text, 0, MAX_MBIT * UNIT, &value);
		if (err == 0 && value != 0 && value < UNIT / 1000)
			err = -ERANGE;
		if (err == 0)
			*(uint64_t *)member = (uint64_t)value / 1000;
		return err;
	case QUEUE:
		return parse_queue(text, &conf->queue_pkts, &conf->queue_bytes);
	case MARK:
		return parse_queue(text, &conf->mark_pkts, &conf->mark_bytes);
	case MTU:
		return parse_mtu(text, member);
	case TOO_BIG:
		return parse_too_big(text, member);
	}
	return -EINVAL;
}

const char *wire_setting_expected(const struct wire_setting *setting)
{
	return expected_of[setting->kind];
}

static const struct wire_setting *find_setting(const char *name, size_t len)
{
	for (size_t i = 0; i < WIRE_SETTINGS; i++)
		if (strlen(wire_settings[i].name) == len &&
		    strncmp(wire_settings[i].name, name, len) == 0)
			return &wire_settings[i];
	return NULL;
}

int wire_settings_apply(char *words, struct wire_conf *conf, const char **wrong,
			const char **expected)
{
	char *save = NULL;

	*wrong = words;
	*expected = "key=value,...";
	if (!*words)
		return -EINVAL;
	for (char *word = strtok_r(words, ",", &save); word;
	     word = strtok_r(NULL, ",", &save)) {
		size_t len = strcspn(word, "=");
		const struct wire_setting *setting = find_setting(word, len);

		*wrong = word;
		*expected = "key=value with " WIRE_SETTING_KEYS;
		if (!setting || !word[len])
			return -EINVAL;
		*expected = wire_setting_expected(setting);
		if (wire_setting_parse(setting, word + len + 1, conf) < 0)
			return -EINVAL;
	}
	return 0;
}

bool wire_setting_up_follows_down(const struct wire_conf *conf)
{
	return conf->up_ns == WIRE_NEVER || conf->up_ns > conf->down_ns;
}
