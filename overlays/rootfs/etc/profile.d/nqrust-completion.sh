# Where bash-completion is not installed, the first Tab behind `installer` reads its completions; 124 has bash try again.
if [ -n "${BASH_VERSION-}" ] && [ -n "${PS1-}" ] && [ -z "${BASH_COMPLETION_VERSINFO-}" ]; then
	_nqrust_load_completion() {
		. /usr/share/bash-completion/completions/installer
		return 124
	}
	complete -F _nqrust_load_completion installer
fi
