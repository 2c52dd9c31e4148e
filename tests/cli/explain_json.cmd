kiln explain --json --stage=schema 'bitwise_not(i32[4])' | grep -o '^{"op":"aten::bitwise_not","stages":{"schema":"'
kiln explain --json 'bitwise_not(i32[4])' | grep -o '"[a-z]*":"' | tr '\n' ' '
kiln explain --all --json 'bitwise_not(i32[4])' | grep -o '"[a-z]*":"' | tr '\n' ' '
