#!/bin/sh
# Checks the layer rules of the project, by includes:
#   apps -> netstack -> {coro, dpdk_glue}; coro -> asm.
# Only dpdk_glue/ includes rte_*; only netstack/ includes lwip/*; apps/ includes
# the public headers (coronet/...) and netstack/options/ alone, and an appliance
# its own headers and apps/common's alone.
# Within netstack/ a folder includes those before it in `order`. So a frame
# passes each folder once: in through link, tcp, recovery, conn; out from api to
# tcp's output phase, and lwIP calls link. lwip/ has headers that everybody may
# include, and the code that lwIP calls, which may include all but the loop.
# Usage: check_layers.sh SOURCE_ROOT
set -eu
cd "${1:?usage: check_layers.sh SOURCE_ROOT}"
bad=0

# refuse PATTERN REASON FOLDER...: no source below FOLDER may include PATTERN.
refuse() {
	pattern=$1 reason=$2
	shift 2
	for folder in "$@"; do
		[ -e "$folder" ] || continue
		found=$(grep -rnHE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($pattern)" \
			--include='*.c' --include='*.h' --include='*.S' "$folder" || true)
		[ -z "$found" ] && continue
		echo "$found" | sed "s|\$|   <- $reason|"
		bad=1
	done
}

private='netstack/([^o]|o[^p])' # all but netstack/options/
refuse 'rte_' 'only dpdk_glue/ may include DPDK' asm coro netstack apps
refuse 'lwip/|netif/' 'only netstack/ may include lwIP' asm coro dpdk_glue apps
refuse 'coro/|coronet/|netstack/|dpdk_glue/|apps/' 'asm/ is the lowest layer' asm
refuse 'netstack/|dpdk_glue/|apps/|coronet/net' 'coro/ knows nothing of networking' coro
refuse "asm/|coro/|coronet/|dpdk_glue/|$private|apps/" 'options/ knows nothing else' \
	netstack/options
refuse 'coro/|coronet/|netstack/|apps/' 'dpdk_glue/ knows nothing above it' dpdk_glue
refuse 'asm/|apps/' 'netstack/ stands on coro/ and dpdk_glue/' netstack
refuse "asm/|coro/|dpdk_glue/|$private" 'apps/ use the public headers alone' apps
refuse 'apps/(load|proxy|httpd|dns|echo|ctl)/' 'apps/common/ knows no appliance' apps/common
refuse 'apps/(load|proxy|httpd|dns|ctl)/' 'an appliance knows no other' apps/echo
refuse 'apps/(proxy|httpd|dns|echo|ctl)/' 'an appliance knows no other' apps/load
refuse 'apps/(load|httpd|dns|echo|ctl)/' 'an appliance knows no other' apps/proxy
refuse 'apps/(load|proxy|dns|echo|ctl)/' 'an appliance knows no other' apps/httpd
refuse 'apps/(load|proxy|httpd|echo|ctl)/' 'an appliance knows no other' apps/dns
refuse 'apps/(load|proxy|echo|httpd|dns)/' 'it needs none of them' apps/ctl

order='options program mem conn recovery tcp udp link api tls resolve control shard sockets'
above=$order
for folder in $order; do
	above=${above#"$folder"}
	above=${above# }
	[ -d "netstack/$folder" ] || { echo "netstack/$folder: no such folder"; bad=1; }
	[ -z "$above" ] && continue
	refuse "netstack/($(echo "$above" | tr ' ' '|'))/" \
		"netstack/$folder/ stands below it" "netstack/$folder"
done
for folder in netstack/*/; do
	case " $order include lwip " in
	*" $(basename "$folder") "*) ;;
	*) echo "$folder: add it to check_layers.sh"; bad=1 ;;
	esac
done
any=$(echo "$order" | tr ' ' '|')
refuse "netstack/($any|state)" 'lwip/ headers stand below all' netstack/lwip/*.h
refuse 'lwip/|netstack/(program|mem|conn|recovery|tcp|link|api|control|shard|lwip|state)' \
	'netstack/sockets/ uses public calls alone' netstack/sockets
refuse 'netstack/shard/' 'lwIP does not call the loop' netstack/lwip
refuse "netstack/($any|lwip)/" 'every folder may include it' netstack/state.h
refuse 'netstack/' 'the public header stands alone' netstack/include
for folder in $order lwip; do
	others=$(echo " $order lwip " | sed "s/ $folder / /; s/^ //; s/ \$//" | tr ' ' '|')
	refuse "netstack/($others)/[a-z_]*_priv\\.h" \
		'_priv.h is private to its folder' "netstack/$folder"
done

[ "$bad" = 0 ] || exit 1
echo "layers: ok"
