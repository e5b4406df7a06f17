#!/bin/sh
# Cut a node of kind off from the others, or join it again: node_link.sh cut|join NODE
set -eu
case $1 in
cut) change=--insert ;;
join) change=--delete ;;
*) exit 2 ;;
esac
docker exec "$2" iptables --table raw "$change" PREROUTING --in-interface eth0 --jump DROP
docker exec "$2" iptables --table mangle "$change" POSTROUTING --out-interface eth0 --jump DROP
