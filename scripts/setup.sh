#!/bin/sh
# Makes the checkout ready: checks Python and Java, then fills .venv from requirements.lock.
#
#   scripts/setup.sh             check everything, then install
#   scripts/setup.sh --check     check Python and Java only
#   scripts/setup.sh --install   check Python, then install (what needs no Java: lint, unit tests)
#
# PYTHON=/path/to/python chooses the interpreter, JAVA_HOME the Java.
# Everything that is missing is named in one go, each with its remedy; the exit status is then 1.
set -u
unset CDPATH

root=${0%/*}/..
[ "$root" = "$0/.." ] && root=..
cd "$root" || exit 1

venv=.venv
problems=0

problem() {
    problems=$((problems + 1))
    printf 'sparkjet: %s\n' "$1" >&2
}

# A python that starts at all is asked itself: version parsing in shell would miss pyenv's shims, which exist but fail.
new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

find_python() {
    python=
    if [ -n "${PYTHON:-}" ]; then
        if new_enough "$PYTHON"; then
            python=$PYTHON
        else
            found=$(version_of "$PYTHON")
            [ -n "$found" ] && found="Python $found"
            problem "Python 3.10 or newer is needed and PYTHON=$PYTHON is ${found:-no Python that runs}: name a newer one or unset it."
        fi
        return
    fi
    # An environment that works is kept: it may have been made with a PYTHON that is not set today.
    if [ -x "$venv/bin/pip" ] && new_enough "$venv/bin/python"; then
        python=$venv/bin/python
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
        if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
            python=$candidate
            return
        fi
    done
    found=$(version_of python3)
    problem "Python 3.10 or newer is needed${found:+ and python3 is $found}: apt-get install python3 python3-venv, or set PYTHON=/path/to/python."
}

# Debian's python3 has the venv module but not what it needs to put pip into a new environment.
check_venv() {
    case $python in '' | "$venv/bin/python") return ;; esac
    if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        problem "Python $(version_of "$python") cannot make virtual environments: apt-get install python3-venv (or python$(version_of "$python")-venv)."
    fi
}

check_java() {
    remedy='apt-get install openjdk-17-jre-headless (where there is none, as on Debian 13: openjdk-21-jre-headless)'
    if [ -n "${JAVA_HOME:-}" ]; then
        # Spark looks nowhere else once JAVA_HOME is set.
        java=$JAVA_HOME/bin/java
        if [ ! -x "$java" ]; then
            problem "JAVA_HOME is $JAVA_HOME, where there is no bin/java: correct it or unset it."
            return
        fi
    elif ! java=$(command -v java); then
        problem "Java 17 or newer is needed and there is none: $remedy."
        return
    fi
    # Whole output, not its first line: with JAVA_TOOL_OPTIONS set, Java says so first.
    output=$("$java" -version 2>&1)
    case $output in
        *'version "'*) ;;
        *) problem "Java 17 or newer is needed and $java does not run: $remedy."; return ;;
    esac
    version=${output#*version \"}
    version=${version%%\"*}
    # 1.8.0_292 is Java 8; 17.0.15, 21 and 22-ea are what they seem.
    major=${version#1.}
    major=${major%%[!0-9]*}
    if [ "${major:-0}" -lt 17 ]; then
        problem "Java 17 or newer is needed and $java is $version: $remedy, or set JAVA_HOME to a newer one."
    fi
}

install() {
    if [ "$python" != "$venv/bin/python" ]; then
        # --clear: an environment whose Python has gone cannot be repaired, only made again.
        if ! output=$("$python" -m venv --clear "$venv" 2>&1); then
            problem "$python could not make the virtual environment $venv: apt-get install python3-venv. It said:"
            printf '%s\n' "$output" >&2
            return
        fi
    fi
    log=$venv/setup.log
    echo "sparkjet: installing the locked packages into $venv (PySpark alone is some 450 MB; a few minutes the first time)"
    # --no-build-isolation: the build backend is in the lock, nothing else is downloaded to build us.
    if "$venv/bin/python" -m pip install --disable-pip-version-check --quiet -r requirements.lock >"$log" 2>&1 &&
        "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --no-build-isolation --no-deps -e src/sparkjet_grid -e . >>"$log" 2>&1
    then
        return
    fi
    case $(cat "$log") in
        *'No space left'*)
            problem "the disk is full: make room (about 1 GB) and try again." ;;
        *NewConnectionError* | *'Failed to establish'* | *'name resolution'* | *'timed out'* | *ConnectTimeout* | \
            *ProxyError* | *SSLError* | *'Max retries'* | *'onnection broken'*)
            problem "the packages could not be downloaded: is there a network? Behind a firewall point pip to a mirror (PIP_INDEX_URL) or to a directory of wheels (PIP_FIND_LINKS), then try again. pip's own words: $log" ;;
        *)
            problem "pip could not install the packages; its own words:"
            cat "$log" >&2 ;;
    esac
}

case ${1:-} in
    '' | --check | --install) ;;
    *) problem "unknown option $1: --check, --install or nothing."; exit 2 ;;
esac
find_python
check_venv
[ "${1:-}" = --install ] || check_java
if [ "$problems" -eq 0 ] && [ "${1:-}" != --check ]; then
    install
fi
[ "$problems" -eq 0 ]
