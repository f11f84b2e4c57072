#!/bin/sh
# sshd on a loopback port with throwaway keys, for tests of rsync
#
#   sshd.sh DIR start | stop
#   rsync -a -e "ssh -F DIR/ssh_config" SRC/ ci:/DST/       (host alias "ci")
#
# PORT=n picks the port; without it a free one is looked for.
set -eu
D=${1:?usage: sshd.sh DIR start|stop}
CMD=${2:-start}
case $D in /*) ;; *) D=$PWD/$D ;; esac
U=$(id -un)

free_port() {
    /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start() {
    PORT=${PORT:-$(free_port)}
    mkdir -p "$D"
    chmod 700 "$D"
    [ -s "$D/host" ] || ssh-keygen -q -t ed25519 -N '' -f "$D/host"
    [ -s "$D/id" ] || ssh-keygen -q -t ed25519 -N '' -f "$D/id"
    cp "$D/id.pub" "$D/authorized_keys"
    chmod 600 "$D/authorized_keys"
    echo "[127.0.0.1]:$PORT $(cat "$D/host.pub")" >"$D/known_hosts"
    cat >"$D/sshd_config" <<CONF
ListenAddress 127.0.0.1:$PORT
HostKey $D/host
PidFile $D/sshd.pid
AuthorizedKeysFile $D/authorized_keys
AllowUsers $U
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
# DIR may lie below folders that others can write (/tmp)
StrictModes no
MaxStartups 200:30:400
MaxSessions 100
UseDNS no
PrintMotd no
CONF
    cat >"$D/ssh_config" <<CONF
Host ci
  HostName 127.0.0.1
  Port $PORT
  User $U
  IdentityFile $D/id
  IdentitiesOnly yes
  UserKnownHostsFile $D/known_hosts
  BatchMode yes
  ConnectTimeout 5
  LogLevel ERROR
CONF
    mkdir -p /run/sshd 2>/dev/null || : # privilege separation folder; without systemd nobody makes it
    /usr/sbin/sshd -t -f "$D/sshd_config"
    /usr/sbin/sshd -f "$D/sshd_config" -E "$D/sshd.log"
    i=0
    until ssh -F "$D/ssh_config" ci true 2>/dev/null; do
        i=$((i + 1))
        [ $i -lt 50 ] || { cat "$D/sshd.log" >&2; exit 1; }
        sleep 0.1
    done
}

stop() {
    [ -s "$D/sshd.pid" ] || return 0
    kill "$(cat "$D/sshd.pid")" 2>/dev/null || :
    rm -f "$D/sshd.pid"
}

case $CMD in start) start ;; stop) stop ;; *) echo "unknown: $CMD" >&2; exit 2 ;; esac
