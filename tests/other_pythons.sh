#!/usr/bin/env bash
# Run tests under the Python of another Debian release, in a chroot (needs Linux, root and debootstrap):
#
#   tests/other_pythons.sh trixie                          # Python 3.13: every test whose libraries are there
#   tests/other_pythons.sh forky tests/buffers -x          # Python 3.14: pytest's own arguments
#
# CHROOTS   where the chroots are kept, each about 2 GB (default: /var/tmp/other_pythons)
# PACKAGES  what pip installs (default: the package with the extra `train`, and what the tests need)
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

if [ ! -e "$root/made" ]; then
  script=/usr/share/debootstrap/scripts/$suite
  [ -e "$script" ] || script=${script%/*}/sid # a release that is newer than this debootstrap
  mkdir -p "$root"
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
    "$suite" "$root" "${MIRROR:-http://deb.debian.org/debian}" "$script"
  chroot "$root" python3 -m venv /venv
  touch "$root/made"
fi

for place in proc dev sys; do mount --rbind "/$place" "$root/$place"; done
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
rm -rf "$root/source"
mkdir "$root/source"
git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from - |
  tar --extract --directory "$root/source"

read -ra packages <<<"${PACKAGES:--e /source[train] pytest hypothesis scipy filelock}"
chroot "$root" /venv/bin/python -m pip install --quiet --disable-pip-version-check \
  -c /source/constraints.txt "${packages[@]}"
exec chroot "$root" env HOME=/root PATH=/venv/bin:/usr/bin:/bin PYTHONPATH=/source \
  sh -c 'cd /source && python --version && exec python -m pytest "$@"' pytest "$@"
