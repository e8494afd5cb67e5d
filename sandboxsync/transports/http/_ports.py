"""Whether something listens on a port inside of a sandbox: bash looks, there."""

from __future__ import annotations

from sandboxsync.errors import ProtocolError
from sandboxsync.transports.http.hosted._host import PlainExec

__all__ = ["probe_port"]

# The status of the answer, 0 without a path, nothing when nobody answers. Nothing of this starts a program.
_SCRIPT = r"""
port=$1 path=$2 until=$((SECONDS + $3))
for host in 127.0.0.1 ::1; do
  { exec 3<>"/dev/tcp/$host/$port"; } 2>/dev/null || continue
  if [[ -z $path ]]; then
    echo 0
    exit
  fi
  [[ $host == ::1 ]] && host='[::1]'
  printf 'GET %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\nAccept: */*\r\n\r\n' "$path" "$host" "$port" >&3
  while IFS= read -r -t "$((until > SECONDS ? until - SECONDS : 1))" -u 3 line && [[ $line == HTTP/[0-9]* ]]; do
    read -r _ status _ <<<"$line"
    # What comes before the answer is an empty line's distance away.
    [[ $status == 1?? ]] || { echo "$status"; exit; }
    while IFS= read -r -t 1 -u 3 line && [[ $line != $'\r' && -n $line ]]; do :; done
  done
  exec 3>&-
done
"""


def probe_port(plain: PlainExec, port: int, path: str | None, timeout: float) -> int | None:
    """See `Transport.probe_port`."""
    answer = plain.exec(["bash", "-c", _SCRIPT, "port", str(port), path or "", str(max(1, round(timeout)))])
    said = b""
    try:
        while not isinstance(item := answer.read(), int):
            stream, data = item
            said += data if stream == "stdout" else b""
    finally:
        answer.close()
    text = said.decode("ascii", "replace").strip()
    if text and not text.isdigit():
        raise ProtocolError(f"the sandbox says {text[:200]!r} of a port")
    return int(text) if text else None
