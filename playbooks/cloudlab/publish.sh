#!/bin/sh
# Publishes this folder as a branch of its own: CloudLab wants profile.py at the top of a repository.
#
#   sh playbooks/cloudlab/publish.sh [BRANCH]     default: cloudlab-profile
#
# A new commit on the branch has the files of this folder as they are in HEAD, and no others. The
# working tree, the index and other branches stay as they are. Nothing is pushed.
set -eu

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

cd "$(dirname -- "$0")"
branch=${1-cloudlab-profile}
command -v git >/dev/null || die "git is missing; install it with: sudo apt-get install -y git"
prefix=$(git rev-parse --show-prefix) || die "$PWD is not in a repository of git; run this in a clone"
case $branch in -*) die "'$branch' cannot be the name of a branch" ;; esac
git check-ref-format "refs/heads/$branch" || die "'$branch' cannot be the name of a branch"
[ -z "$(git status --porcelain -- .)" ] ||
  die "files of $prefix differ from HEAD, from which the branch is made; commit or remove them"
tree=$(git rev-parse --verify --quiet "HEAD:${prefix%/}") || die "HEAD has no $prefix; commit it"

if old=$(git rev-parse --verify --quiet "refs/heads/$branch"); then
  git cat-file -e "$old:profile.py" 2>/dev/null ||
    die "the branch $branch has no profile.py at its top, so it is another's; give another name"
fi
if [ -n "$old" ] && [ "$(git rev-parse "$old^{tree}")" = "$tree" ]; then
  commit=$old
else
  # shellcheck disable=SC2086 # no parent, or two words
  commit=$(git commit-tree "$tree" ${old:+-p $old} -m "profile of $(git rev-parse --short HEAD)")
  # Unlike update-ref, it refuses a branch that is checked out somewhere.
  git branch --force "$branch" "$commit" >/dev/null || die "the branch $branch was not changed"
fi

cat <<MESSAGE
The branch $branch is at $(git rev-parse --short "$commit"). Push it to a public repository:
    git push REMOTE $branch
On CloudLab, create a profile from that repository, and choose the branch $branch. If the portal
finds no profile.py because it reads the repository's default branch, push to one of its own:
    git push URL $branch:main
MESSAGE
