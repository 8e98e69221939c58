#!/bin/sh
# The tool of contract.py in plain sh: isthmus-tool/1, one process a call.
if [ "$TOOLBOX_ACTION" = describe ]; then
	cat <<'END'
{"protocol":"isthmus-tool/1","lifetime":"call","tools":[{"name":"exam","label":"Exam","description":"What a contract asks","parameters":{"type":"object","properties":{"do":{"type":"string","enum":["echo","throw","update","crash","hang","twice","noise","exec","silent","big","ask","cwd","tell","emit","before"]},"text":{"type":"string"},"count":{"type":"integer"}},"required":["do"],"additionalProperties":false}}]}
END
	exit
fi

member() { # NAME: of the line that was read, a string without escapes
	printf '%s\n' "$line" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"
}

say() { # TYPE REST
	printf '{"type":"%s","id":"%s"%s}\n' "$1" "$id" "$2"
}

result() { # TEXT [REST]
	say result ",\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]$2"
}

IFS= read -r line
id=$(member id)
text=$(member text)
case $(member "do") in
echo) result "$text" ',"details":{"secret":"kept apart"}' ;;
throw) say error ",\"message\":\"no luck with $text\"" ;;
update)
	for number in 1 2 3; do
		say update ",\"content\":[{\"type\":\"text\",\"text\":\"step $number\"}]"
	done
	result "all steps"
	;;
crash)
	echo "it broke" >&2
	exit 3
	;;
hang)
	trap '' TERM
	sleep "$text" &
	wait
	sleep "$text"
	;;
twice)
	result first
	result second
	;;
noise)
	printf 'no JSON\n\377\376\n{"type":"unknown"}\n[1]\n'
	echo "harmless" >&2
	result heard
	;;
exec)
	printf '{"type":"exec","id":"%s","ask":"e1","argv":["printf","%%s","$HOME and *"],"timeout":5000}\n' "$id"
	IFS= read -r line
	result "$(member stdout)"
	;;
silent) exit 0 ;;
big)
	printf '{"type":"result","id":"%s","content":[{"type":"text","text":"' "$id"
	head -c 2970000 /dev/zero | tr '\0' x | sed 's/.\{99\}/&\\n/g'
	printf '"}]}\n'
	;;
ask)
	say ui_request ',"ask":"u1","method":"select","title":"Which?","options":["red","blue"]'
	IFS= read -r line
	result "chose $(member value) in $$"
	;;
cwd) result "$(pwd -P)" ;;
tell)
	say message ',"custom_type":"note","content":"by the way","display":true'
	result told
	;;
emit)
	say emit ',"channel":"exam:done","data":{"n":1}'
	result emitted
	;;
before) result "$(printf '%s' "$line" | grep -o '"call":' | wc -l)" ;;
esac
