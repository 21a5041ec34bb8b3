#!/usr/bin/env bash
# Run `make test` under the Python of another Debian release, in a chroot (needs Linux, root and debootstrap):
#
#   tests/other_pythons.sh trixie                              # Python 3.13
#   tests/other_pythons.sh forky                               # Python 3.14
#   tests/other_pythons.sh forky quick ARGS="-x -k wrap"       # make's own arguments
#
# CHROOTS   where the chroots are kept, each about 8 GB (default: /var/tmp/other_pythons)
# MIRROR    Debian's packages (default: http://deb.debian.org/debian)
#
# pip reads the PIP_ variables and /etc/pip.conf of this machine. PyTorch without its GPU libraries is much smaller:
# set PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu.
set -euo pipefail
suite=${1:?"which Debian release? trixie has Python 3.13, forky 3.14"}
shift
if [ "${OTHER_PYTHONS_MOUNTS:-}" != private ]; then # all mounts below end with this process
  OTHER_PYTHONS_MOUNTS=private exec unshare --mount --propagation private "$0" "$suite" "$@"
fi
root=${CHROOTS:-/var/tmp/other_pythons}/$suite
cd "$(dirname "${BASH_SOURCE[0]}")/.."
inside=(chroot "$root" env --unset=PYTHONPATH HOME=/root TMPDIR=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin)

if [ ! -e "$root/unpacked" ]; then
  script=/usr/share/debootstrap/scripts/$suite
  [ -e "$script" ] || script=${script%/*}/sid # a release that is newer than this debootstrap
  mkdir -p "$root"
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,make \
    "$suite" "$root" "${MIRROR:-http://deb.debian.org/debian}" "$script"
  touch "$root/unpacked"
fi
for place in proc dev sys; do mount --rbind "/$place" "$root/$place"; done
for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
  [ ! -e "$file" ] || cp "$file" "$root$file"
done
# The tests of the site need a browser, which debootstrap can't configure.
"${inside[@]}" sh -c 'command -v chromium || apt-get install --quiet --yes --no-install-recommends chromium' >/dev/null

mkdir -p "$root/source"
find "$root/source" -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from - |
  tar --extract --directory "$root/source"
exec "${inside[@]}" make -C /source "${@:-test}"
