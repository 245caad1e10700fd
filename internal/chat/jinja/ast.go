package jinja

// node is a statement, expr an expression. The evaluator switches on their types.
type (
	node any
	expr any
)

// Statements.
type (
	dataNode   struct{ text string }
	outputNode struct{ value expr }
	ifNode     struct {
		branches []ifBranch
		elseBody []node
	}
	ifBranch struct {
		cond expr
		body []node
	}
	forNode struct {
		target    expr // *nameExpr or *tupleExpr of targets
		iter      expr
		filter    expr // nil: none
		recursive bool
		body      []node
		elseBody  []node
	}
	setNode struct {
		target expr // *nameExpr, *nsRefExpr or *tupleExpr of them
		value  expr
	}
	setBlockNode struct {
		target  expr
		filters expr // applied to a captureExpr; nil: none
		body    []node
	}
	macroNode struct {
		name  string
		macro *macroDef
	}
	callNode struct {
		call  *callExpr
		macro *macroDef // the body, as the macro "caller"
	}
	filterNode struct {
		filters expr // applied to a captureExpr
		body    []node
	}
	withNode struct {
		targets []expr
		values  []expr
		body    []node
	}
	// scopeNode runs a body in a scope of its own: block and generation tags.
	scopeNode    struct{ body []node }
	breakNode    struct{}
	continueNode struct{}
)

type macroDef struct {
	name     string
	params   []string
	defaults []expr // nil for a parameter without default; as long as params
	body     []node
	usesArgs bool // the body names varargs
	usesKw   bool // the body names kwargs
	usesCall bool // the body names caller
}

// Expressions. line is where an error is reported.
type (
	constExpr struct{ value Value }
	nameExpr  struct{ name string }
	nsRefExpr struct{ name, attr string }
	tupleExpr struct{ items []expr }
	listExpr  struct{ items []expr }
	dictExpr  struct{ keys, values []expr }
	condExpr  struct{ cond, yes, no expr } // no is nil without else
	logicExpr struct {
		and         bool
		left, right expr
	}
	notExpr   struct{ value expr }
	unaryExpr struct {
		minus bool
		value expr
		line  int
	}
	binaryExpr struct {
		op          string
		left, right expr
		line        int
	}
	concatExpr  struct{ items []expr }
	compareExpr struct {
		first expr
		ops   []string // == != < <= > >= in "not in"
		rest  []expr
		line  int
	}
	attrExpr struct {
		value expr
		name  string
		line  int
	}
	itemExpr struct {
		value, index expr
		line         int
	}
	sliceExpr struct{ start, stop, step expr } // each may be nil
	callExpr  struct {
		fn   expr
		args callArgs
		line int
	}
	filterExpr struct {
		value expr
		name  string
		args  callArgs
		line  int
	}
	testExpr struct {
		value expr
		name  string
		args  callArgs
		line  int
	}
	// captureExpr stands for the text of a set or filter block.
	captureExpr struct{}
)

type callArgs struct {
	pos      []expr
	names    []string // of the keyword arguments
	named    []expr
	dynPos   expr // *args; nil: none
	dynNamed expr // **kwargs; nil: none
}
