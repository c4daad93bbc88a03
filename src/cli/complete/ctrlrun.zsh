#compdef ctrlrun
# Completion of ctrlrun for zsh 5 and later.
_ctrlrun() {
    local -a said values shown space
    local line
    said=("${(@f)$("${words[1]}" __complete zsh -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    case "${said[1]}" in
        files) _files; return ;;
        commands) _command_names -e || _files; return ;;
        nospace) space=(-S '') ;;
        words) ;;
        *) return 1 ;;
    esac
    for line in "${(@)said[2,-1]}"; do
        [[ -n "$line" ]] || continue
        values+=("${line%%$'\t'*}")
        shown+=("${line%%$'\t'*}${${line#*$'\t'}:+  -- ${line#*$'\t'}}")
    done
    (( ${#values} )) && compadd "${space[@]}" -l -d shown -a values
}
if [[ "${funcstack[1]-}" == _ctrlrun ]]; then
    _ctrlrun "$@"
else
    compdef _ctrlrun ctrlrun
fi
