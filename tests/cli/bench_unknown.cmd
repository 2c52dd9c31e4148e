kiln bench nothing
