kiln ops show add_.Tensor | sed '/^row:/q'
kiln ops show --json add.Tensor | grep -o '^{"name":"aten::add.Tensor","form":"functional","family":"map","served":true'
# a comment behind a row belongs to the row after it
kiln ops show kthvalue | tail -n 1
