# Completion of ctrlrun for bash 4 and later.
_ctrlrun() {
    local IFS=$'\n' said
    COMPREPLY=()
    mapfile -t said < <("${COMP_WORDS[0]}" __complete bash -- "$COMP_WORDBREAKS" \
        "${COMP_LINE:0:$COMP_POINT}" 2>/dev/null)
    case "${said[0]-}" in
        files)
            compopt -o default 2>/dev/null
            ;;
        commands)
            # Of the word at the cursor, a command of PATH or a file.
            mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
            compopt -o default 2>/dev/null
            ;;
        nospace)
            compopt -o nospace 2>/dev/null
            COMPREPLY=("${said[@]:1}")
            ;;
        words)
            COMPREPLY=("${said[@]:1}")
            ;;
    esac
}
complete -F _ctrlrun ctrlrun
